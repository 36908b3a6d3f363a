#include "zeno/plan/advice_reasons.h"

#include <fmt/format.h>

#include <algorithm>

#include "zeno/device/ledger.h"
#include "zeno/plan/fit.h"

namespace zeno::plan {
namespace {

// The stage's best option in the order of the goal; null: none fits.
const Option* best_of_stage(const Advice& advice, int stage) {
  const auto found =
      std::ranges::find_if(advice.tried, [&](const Option& o) { return o.row.setting.stage == stage; });
  return found == advice.tried.end() ? nullptr : &*found;
}

const PlanRow* least_missing(const std::vector<PlanRow>& rows, auto&& where) {
  const PlanRow* least = nullptr;
  for (const PlanRow& row : rows) {
    if (!where(row.setting)) continue;
    const auto missing = [](const PlanRow& r) { return r.missing_device + r.missing_host; };
    if (least == nullptr || missing(row) < missing(*least)) least = &row;
  }
  return least;
}

Purpose largest_purpose(const PlanBytes& bytes) {
  int largest = 0;
  for (int p = 1; p < kPurposes; ++p)
    if (bytes.at(Tier::device, Purpose(p)) > bytes.at(Tier::device, Purpose(largest))) largest = p;
  return Purpose(largest);
}

std::string lack_of(const PlanRow& row) {
  return row.missing_device > 0
             ? fmt::format("{} of device memory short (most goes to {})", format_bytes(row.missing_device),
                           name_of(largest_purpose(row.bytes)))
             : fmt::format("{} of host memory short", format_bytes(row.missing_host));
}

std::string_view what_stage_shards(int stage) {
  constexpr std::array<std::string_view, 4> kWhat{
      "everything on every rank", "optimizer states sharded, no more traffic than stage 0",
      "gradients sharded too, at the same traffic", "parameters sharded too, 50 % more traffic"};
  return kWhat[size_t(stage)];
}

std::string stage_line(const AdviceQuestion& q, const Advice& advice, const std::vector<PlanRow>& rows,
                       int stage) {
  const std::string head = fmt::format("stage {} ({}): ", stage, what_stage_shards(stage));
  if (const Option* option = best_of_stage(advice, stage)) {
    const bool chosen = advice.chosen && advice.chosen->row.setting.stage == stage;
    return fmt::format("{}{} fits{}, {:.0f} tokens/s{}", head, flags_of(*option),
                       option->row.setting.homes > Homes::device ? " with states outside the device" : "",
                       option->time.tokens_per_s, chosen ? "  ← this one" : "");
  }
  const PlanRow* row = least_missing(rows, [&](const Setting& s) { return s.stage == stage; });
  if (row == nullptr) return head + "not requested";
  return fmt::format(
      "{}does not fit, {}", head,
      row->fits() ? fmt::format("or not with {} sequences per step", q.sequences) : lack_of(*row));
}

// Why states left the device, or why they stay.
std::string home_line(const Option& chosen, const Advice& advice, Goal goal) {
  const auto near = std::ranges::find_if(
      advice.tried, [](const Option& o) { return o.row.setting.homes == Homes::device; });
  if (chosen.row.setting.homes <= Homes::device)
    return "states stay on the device: they fit, and nothing is faster";
  if (near == advice.tried.end()) return "states leave the device because nothing fits there";
  if (goal != Goal::fastest)
    return fmt::format("states leave the device to reach the goal: {:.0f} tokens/s with them on the device",
                       near->time.tokens_per_s);
  return fmt::format(
      "states leave the device: the freed memory makes the step {:.2f} times as fast ({:.0f} tokens/s "
      "without)",
      chosen.time.tokens_per_s / near->time.tokens_per_s, near->time.tokens_per_s);
}

std::string bound_line(const StepTime& time) {
  std::string text = fmt::format("a step of {:.3f} s, {:.0f} % of it computing", time.step_s,
                                 100 * time.compute_s / time.step_s);
  if (time.stage.count > 1) text += fmt::format(" (in pipeline stage {}, the slowest)", time.stage.index);
  int largest = 0;
  for (int w = 1; w < kWaits; ++w)
    if (time.exposed[size_t(w)] > time.exposed[size_t(largest)]) largest = w;
  const double waits = time.exposed[size_t(largest)] / time.step_s;
  if (waits > 0.01) text += fmt::format(", {:.0f} % waiting for {}", 100 * waits, name_of(Wait(largest)));
  return text + fmt::format("; busiest: {}", name_of(time.bottleneck));
}

// The cheapest row of a table that fits, or what the nearest lacks.
std::string answer(const std::vector<PlanRow>& rows, auto&& where) {
  const auto fitting =
      std::ranges::find_if(rows, [&](const PlanRow& row) { return row.fits() && where(row.setting); });
  if (fitting != rows.end()) return fmt::format("{} would fit", flags_of(fitting->setting));
  const PlanRow* row = least_missing(rows, where);
  return row == nullptr ? "not planned"
                        : fmt::format("nothing fits, {} even with {}", lack_of(*row), flags_of(row->setting));
}

std::string more_ranks(const AdviceQuestion& q, const nn::LayerList& layers) {
  const int ranks = ranks_that_fit(layers, q.options, q.choices.limits);
  if (ranks == 0) return "";
  return fmt::format("; {} ranks would be enough with --stage 3 --recompute full --micro-batch 1", ranks);
}

void add_next(std::vector<std::string>& lines, const AdviceQuestion& q, const Advice& advice,
              const std::vector<PlanRow>& rows) {
  if (advice.chosen) {
    const int64_t twice = 2 * advice.chosen->row.setting.micro_batch;
    const bool planned = std::ranges::find(q.choices.micro_batches, twice) != q.choices.micro_batches.end();
    if (planned)
      lines.push_back(fmt::format("twice the micro-batch: {}",
                                  answer(rows, [&](const Setting& s) { return s.micro_batch == twice; })));
  }
  if (!q.next_larger) return;
  const nn::LayerList larger = q.next_larger();
  PlanChoices choices = q.choices;
  choices.micro_batches = {1};
  const std::vector<PlanRow> table = plan_rows({larger, {}}, q.options, choices);
  const auto any = [](const Setting&) { return true; };
  const bool fits = std::ranges::any_of(table, [](const PlanRow& row) { return row.fits(); });
  lines.push_back(fmt::format("a model with twice as many blocks: {}{}", answer(table, any),
                              fits ? "" : more_ranks(q, larger)));
}

}  // namespace

std::vector<std::string> describe_time(const StepTime& time, const std::string& machine) {
  std::vector<std::string> lines{fmt::format("on {}: {:.0f} tokens/s, {:.0f} TFLOP/s per rank; {}", machine,
                                             time.tokens_per_s, time.flops_per_s() / 1e12, bound_line(time))};
  std::string waits;
  for (size_t i = 0; i < std::min<size_t>(3, time.exposed_by_unit.size()); ++i) {
    const StepTime::Exposed& exposed = time.exposed_by_unit[i];
    if (exposed.seconds < 0.002 * time.step_s) break;
    waits += fmt::format("{}{} of {} {:.2f} ms", waits.empty() ? "" : ", ", exposed.op, exposed.unit,
                         exposed.seconds * 1e3);
  }
  if (!waits.empty()) lines.push_back(fmt::format("computation waits longest for: {}", waits));
  return lines;
}

std::vector<std::string> reasons_for(const AdviceQuestion& q, const Advice& advice,
                                     const std::vector<PlanRow>& rows) {
  std::vector<std::string> lines;
  if (q.options.mesh.ranks() > 1)
    for (const int stage : q.choices.stages) lines.push_back(stage_line(q, advice, rows, stage));
  if (advice.chosen) {
    lines.push_back(home_line(*advice.chosen, advice, q.goal));
    lines.push_back(bound_line(advice.chosen->time));
  } else {
    lines.push_back(fmt::format("{}{}", answer(rows, [](const Setting&) { return true; }),
                                more_ranks(q, q.model.layers)));
  }
  add_next(lines, q, advice, rows);
  return lines;
}

}  // namespace zeno::plan
