#include "zeno/plan/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "zeno/base/host.h"
#include "zeno/base/workers.h"
#include "zeno/device/device.h"
#include "zeno/plan/advice_reasons.h"

namespace zeno::plan {
namespace {

constexpr std::array<std::string_view, 3> kGoals{"fastest", "largest-batch", "smallest"};
// Within this of the best speed, the simpler setting wins: a plan is not more exact than that.
constexpr double kClose = 0.97;

// What costs the user least trouble: states near, little sharding, nothing computed twice, small batches.
auto trouble_of(const Option& option) {
  const Setting& s = option.row.setting;
  return std::tuple(s.homes, s.recompute, s.stage, s.groups.ranks > 0, option.order, s.micro_batch);
}

bool better(const Option& a, const Option& b, Goal goal) {
  const auto batch = [](const Option& o) { return o.row.setting.micro_batch; };
  const auto device = [](const Option& o) { return o.row.bytes.total(Tier::device); };
  if (goal == Goal::largest_batch && batch(a) != batch(b)) return batch(a) > batch(b);
  if (goal == Goal::smallest && device(a) != device(b)) return device(a) < device(b);
  return a.time.tokens_per_s > b.time.tokens_per_s;
}

// Micro-batches of one setting that may be best for a goal: time per token falls slowly with their size, so
// the two largest that fit are timed; for the least memory, the smallest.
std::vector<PlanRow> worth_timing(const std::vector<PlanRow>& rows, const AdviceQuestion& q) {
  const int ranks = q.options.mesh.batch_ranks();
  std::vector<PlanRow> kept;
  for (const PlanRow& row : rows) {
    if (!row.fits()) continue;
    if (q.sequences > 0 && q.sequences % (row.setting.micro_batch * ranks) != 0) continue;
    const auto size = [&](const PlanRow& other) {
      const bool larger = other.setting.micro_batch > row.setting.micro_batch;
      return q.goal == Goal::smallest ? !larger : larger;
    };
    const auto before = std::ranges::count_if(rows, [&](const PlanRow& other) {
      const Setting &a = other.setting, &b = row.setting;
      const bool usable = q.sequences == 0 || q.sequences % (a.micro_batch * ranks) == 0;
      return other.fits() && usable && a.micro_batch != b.micro_batch && size(other) && a.stage == b.stage &&
             a.homes == b.homes && a.recompute == b.recompute;
    });
    if (before < (q.goal == Goal::fastest ? 2 : 1)) kept.push_back(row);
  }
  return kept;
}

// The same rows with other groups of ranks, where these may be faster.
std::vector<PlanRow> in_groups(const std::vector<PlanRow>& rows, const AdviceQuestion& q) {
  if (q.goal != Goal::fastest) return rows;
  std::vector<PlanRow> all;
  for (const PlanRow& row : rows) {
    for (const Groups& groups : group_choices(with(q.options, row.setting), q.host)) {
      all.push_back(row);
      all.back().setting.groups = groups;
    }
  }
  return all;
}

std::vector<Option> options_of(const std::vector<PlanRow>& rows, const AdviceQuestion& q) {
  std::vector<Option> list;
  for (const PlanRow& row : rows) {
    const int64_t together = row.setting.micro_batch * q.options.mesh.batch_ranks();
    const int accumulated = q.sequences > 0 ? int(q.sequences / together) : q.options.policy.micro_batches;
    list.push_back({row, accumulated, q.options.policy.order, {}});
    // Layer by layer, what is gathered or fetched serves all micro-batches; elsewhere it changes nothing. A
    // pipeline has an order of its own.
    const bool staged = q.options.mesh.size(comm::Axis::pipe) > 1;
    const zero::Policy policy = with(q.options, row.setting).policy;
    const bool moves = !policy.params.empty() || policy.offload.optimizer != Tier::device ||
                       policy.offload.params != Tier::device;
    if (accumulated > 1 && moves && !staged && q.any_order &&
        q.options.policy.order == zero::Order::horizontal)
      list.push_back({row, accumulated, zero::Order::vertical, {}});
  }
  return list;
}

// The exact plan and the time of each; what does not fit after all is left out.
std::vector<Option> timed(std::vector<Option> list, const AdviceQuestion& q) {
  Workers workers(available_cores());
  workers.for_each(int64_t(list.size()), [&](int64_t i, int) {
    Option& option = list[size_t(i)];
    const zero::EngineOptions options = with(q.options, option);
    option.row.bytes = plan_bytes(q.model, options);
    set_missing(option.row, options.device, q.choices.limits);
    option.time = predict_step(q.model.layers, options, q.machine);
    option.row.step_seconds = option.time.step_s;
    option.row.tokens_per_second = option.time.tokens_per_s;
  });
  std::erase_if(list, [](const Option& option) { return !option.row.fits(); });
  return list;
}

// Best first; of those that come close to the fastest, the simplest leads.
void rank(std::vector<Option>& list, Goal goal) {
  std::ranges::stable_sort(list, [&](const Option& a, const Option& b) { return better(a, b, goal); });
  if (goal != Goal::fastest || list.empty()) return;
  const double close = kClose * list.front().time.tokens_per_s;
  const auto end = std::ranges::find_if(list, [&](const Option& o) { return o.time.tokens_per_s < close; });
  std::rotate(
      list.begin(),
      std::min_element(list.begin(), end,
                       [](const Option& a, const Option& b) { return trouble_of(a) < trouble_of(b); }),
      end);
}

}  // namespace

std::optional<Goal> parse_goal(std::string_view text) {
  const auto found = std::ranges::find(kGoals, text);
  if (found == kGoals.end()) return {};
  return Goal(found - kGoals.begin());
}

std::string_view name_of(Goal goal) { return kGoals[size_t(goal)]; }

zero::EngineOptions with(const zero::EngineOptions& options, const Option& option) {
  zero::EngineOptions result = with(options, option.row.setting);
  result.policy.micro_batches = option.micro_batches;
  result.policy.order = option.order;
  return result;
}

std::string flags_of(const Option& option) {
  std::string flags = flags_of(option.row.setting);
  if (option.micro_batches > 1) flags += fmt::format(" --grad-accum {}", option.micro_batches);
  if (option.order == zero::Order::vertical) flags += " --order vertical";
  return flags;
}

Advice advise(const AdviceQuestion& q) {
  PlanChoices choices = q.choices;
  if (!choices.overlap) choices.overlap = q.options.mesh.ranks() > 1;  // costs a bucket of memory and no time
  const std::vector<PlanRow> rows = plan_rows(q.model, q.options, choices);
  std::vector<Option> all = timed(options_of(in_groups(worth_timing(rows, q), q), q), q);
  rank(all, q.goal);
  Advice advice;
  if (!all.empty()) advice.chosen = all.front();
  for (const Option& option : all) {
    const Setting& s = option.row.setting;
    const bool seen = std::ranges::any_of(advice.tried, [&](const Option& other) {
      return other.row.setting.stage == s.stage && other.row.setting.homes == s.homes;
    });
    if (!seen) advice.tried.push_back(option);
  }
  advice.reasons = reasons_for(q, advice, rows);
  return advice;
}

}  // namespace zeno::plan
