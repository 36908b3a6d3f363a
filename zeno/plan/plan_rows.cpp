#include "zeno/plan/plan_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "zeno/base/host.h"
#include "zeno/base/workers.h"
#include "zeno/config/config_resolve.h"
#include "zeno/device/device.h"
#include "zeno/model/layers.h"
#include "zeno/plan/estimate.h"

namespace zeno::plan {
namespace {

// The states of the formula, on the tiers where the plan of the similar model keeps its own.
void set_states(PlanBytes& plan, const StateBytes& states) {
  plan.model_states = 0;
  for (const auto& [purpose, bytes] :
       {std::pair{Purpose::parameters, states.parameters}, std::pair{Purpose::gradients, states.gradients},
        std::pair{Purpose::masters, states.masters}, std::pair{Purpose::moments, states.moments}}) {
    double like = 0;
    for (Tier tier : kTiers) like += double(plan.at(tier, purpose));
    for (Tier tier : kTiers) {
      size_t& cell = plan.by_purpose[size_t(tier)][size_t(purpose)];
      cell = like > 0 ? size_t(std::llround(bytes * (double(cell) / like))) : 0;
      plan.model_states += cell;
    }
  }
}

// Where memory has no limits there is no largest micro-batch: the smallest comes first.
bool better(const PlanRow& a, const PlanRow& b, bool limited) {
  if (a.fits() != b.fits()) return a.fits();
  if (!a.fits()) return a.missing_device + a.missing_host < b.missing_device + b.missing_host;
  const auto cost = [&](const Setting& s) {
    return std::tuple(s.homes, s.recompute, s.stage, limited ? -s.micro_batch : s.micro_batch);
  };
  return cost(a.setting) < cost(b.setting);
}

// With several ranks: parameters leave only where they are sharded, and whole optimizer states on every
// rank's host would cost more than sharded ones, for which no more is sent.
bool sensible(int stage, Homes homes) {
  zero::Policy policy;
  zero::apply_stage(policy, stage);
  if (homes == Homes::all_host) return !policy.params.empty();
  return !policy.optimizer.empty() || homes <= Homes::device;
}

std::string layers_of(const nn::LayerList& model, const zero::Stage& stage) {
  const auto name = [&](int layer) {
    return layer < int(model.layers.size()) ? model.layers[size_t(layer)]->name() : model.loss->name();
  };
  const std::string first = name(stage.first), last = name(stage.end - 1);
  return first == last ? first : fmt::format("{} … {}", first, last);
}

struct Series {  // rows that differ in their micro-batch only
  Setting setting;
  std::vector<PlanRow> rows;
};

void fill(Series& series, const PlanModel& model, const zero::EngineOptions& options,
          const PlanChoices& choices) {
  for (const int64_t micro_batch : choices.micro_batches) {
    PlanRow row;
    row.setting = series.setting;
    row.setting.micro_batch = micro_batch;
    row.bytes = plan_bytes(model, with(options, row.setting));
    set_missing(row, options.device, choices.limits);
    series.rows.push_back(row);
    if (!row.fits()) return;
  }
}

}  // namespace

size_t PlanBytes::total(Tier tier) const {
  size_t sum = 0;
  for (const size_t bytes : by_purpose[size_t(tier)]) sum += bytes;
  return sum;
}

void set_missing(PlanRow& row, Device device, MemoryLimits limits) {
  // Unknown limits are no limits.
  if (limits.device == 0) limits.device = SIZE_MAX;
  if (limits.host == 0) limits.host = SIZE_MAX;
  const size_t near = row.bytes.total(Tier::device), host = row.bytes.total(Tier::host);
  row.missing_device = missing_device_bytes(near, host, device, limits);
  row.missing_host = missing_host_bytes(host, device, limits);
}

double count_of(const nn::LayerList& layers) {
  double count = 0;
  for (const nn::Parameter& parameter : model::parameter_table(layers)) count += double(parameter.count());
  return count;
}

std::vector<StageBytes> plan_stages(const PlanModel& model, const zero::EngineOptions& options) {
  zero::Policy policy = options.policy;
  policy.offload.far_host |= options.device.kind == Device::Kind::cuda;
  std::vector<StageBytes> stages;
  for (const zero::MemoryPlan& plan : zero::plan_stages(model.layers, options)) {
    StageBytes& stage = stages.emplace_back(StageBytes{
        plan.stages.front(), layers_of(model.layers, plan.stages.front()), double(plan.elements), {}});
    stage.bytes.model_states = plan.model_state_bytes;
    for (Tier tier : kTiers) {
      for (int p = 0; p < kPurposes; ++p)
        stage.bytes.by_purpose[size_t(tier)][size_t(p)] = plan.ledger->booked(tier, Purpose(p));
    }
    if (!model.params) continue;
    // Its share of them is that of the similar model.
    stage.params *= *model.params / count_of(model.layers);
    const double params = stage.stage.count > 1 ? stage.params : *model.params;
    set_states(stage.bytes, model_states(params, policy, options.mesh));
  }
  return stages;
}

std::array<int, kTiers.size()> neediest_stages(Device::Kind kind, const std::vector<StageBytes>& stages) {
  std::vector<zero::TierBytes> bytes(stages.size());
  for (size_t i = 0; i < stages.size(); ++i)
    for (Tier tier : kTiers) bytes[i][size_t(tier)] = stages[i].bytes.total(tier);
  return zero::neediest_stages(kind, bytes);
}

PlanBytes plan_bytes(const PlanModel& model, const zero::EngineOptions& options) {
  const std::vector<StageBytes> stages = plan_stages(model, options);
  const auto neediest = neediest_stages(options.device.kind, stages);
  PlanBytes most;
  for (const StageBytes& stage : stages)
    most.model_states = std::max(most.model_states, stage.bytes.model_states);
  for (size_t tier = 0; tier < kTiers.size(); ++tier)
    most.by_purpose[tier] = stages[size_t(neediest[tier])].bytes.by_purpose[tier];
  return most;
}

std::string_view name_of(Homes homes) {
  constexpr std::array<std::string_view, 5> kNames{"as given", "none", "optimizer cpu", "optimizer+param cpu",
                                                   "nvme"};
  return kNames[size_t(homes)];
}

Homes homes_of(const zero::Offload& offload, int stage) {
  for (const Homes homes : {Homes::device, Homes::optimizer_host, Homes::all_host, Homes::disk}) {
    const zero::Offload like = with(zero::Policy{}, {.stage = stage, .homes = homes}).offload;
    if (like.optimizer == offload.optimizer && like.params == offload.params) return homes;
  }
  return Homes::as_given;
}

zero::Policy with(zero::Policy policy, const Setting& setting) {
  if (setting.groups.ranks > 0) policy.sharding = setting.groups.sharding;
  zero::apply_stage(policy, setting.stage);
  policy.recompute = setting.recompute;
  policy.overlap = setting.overlap;
  if (setting.homes == Homes::as_given) return policy;
  zero::Offload& offload = policy.offload;
  offload.optimizer = offload.params = Tier::device;
  if (setting.homes == Homes::disk) {
    offload.optimizer = Tier::disk;
    if (!policy.params.empty()) offload.params = Tier::disk;
  } else if (setting.homes != Homes::device) {
    offload.optimizer = Tier::host;
    if (setting.homes == Homes::all_host) offload.params = Tier::host;
  }
  return policy;
}

zero::EngineOptions with(zero::EngineOptions options, const Setting& setting) {
  options.policy = with(std::move(options.policy), setting);
  if (setting.groups.ranks > 0) options.mesh = options.mesh.in_groups(setting.groups.ranks);
  options.shape.batch = setting.micro_batch;
  return options;
}

std::string flags_of(const Setting& setting) {
  std::string flags = fmt::format("--stage {}", setting.stage);
  const zero::Offload offload = with(zero::Policy{}, setting).offload;
  for (const auto& [flag, tier] :
       {std::pair{"--offload-optimizer", offload.optimizer}, std::pair{"--offload-param", offload.params}})
    if (tier != Tier::device) flags += fmt::format(" {} {}", flag, tier == Tier::disk ? "nvme" : "cpu");
  if (setting.recompute != nn::Recompute::none)
    flags += setting.recompute == nn::Recompute::full ? " --recompute full" : " --recompute selective";
  if (setting.overlap && !config::overlaps_by_default(setting.stage)) flags += " --overlap-comm";
  if (setting.groups.ranks > 0) flags += fmt::format(" {}", flags_of(setting.groups));
  return flags + fmt::format(" --micro-batch {}", setting.micro_batch);
}

PlanChoices all_choices(Device::Kind device, const comm::Mesh& mesh, MemoryLimits limits) {
  PlanChoices choices;
  choices.limits = limits;
  choices.stages = mesh.data_ranks() > 1 ? std::vector{0, 1, 2, 3} : std::vector{0};
  choices.homes = {Homes::device, Homes::optimizer_host, Homes::all_host, Homes::disk};
  if (device == Device::Kind::cpu) choices.homes = {Homes::device, Homes::disk};
  choices.recompute = {nn::Recompute::none, nn::Recompute::selective, nn::Recompute::full};
  const int64_t most = limits.device > 0 ? 64 : 8;
  for (int64_t batch = 1; batch <= most; batch *= 2) choices.micro_batches.push_back(batch);
  return choices;
}

std::vector<PlanRow> plan_rows(const PlanModel& model, const zero::EngineOptions& options,
                               const PlanChoices& choices) {
  std::vector<Series> all;
  for (const int stage : choices.stages) {
    for (const Homes homes : choices.homes) {
      if (options.mesh.data_ranks() > 1 && !sensible(stage, homes)) continue;
      for (const nn::Recompute recompute : choices.recompute)
        all.push_back(
            {{stage, homes, recompute, 1, choices.overlap.value_or(config::overlaps_by_default(stage))}, {}});
    }
  }
  Workers workers(available_cores());
  workers.for_each(int64_t(all.size()),
                   [&](int64_t i, int) { fill(all[size_t(i)], model, options, choices); });
  std::vector<PlanRow> rows;
  for (const Series& series : all) rows.insert(rows.end(), series.rows.begin(), series.rows.end());
  std::ranges::stable_sort(
      rows, [&](const PlanRow& a, const PlanRow& b) { return better(a, b, choices.limits.known()); });
  return rows;
}

std::vector<PlanRow> best_rows(const std::vector<PlanRow>& rows) {
  std::vector<PlanRow> best;
  for (const PlanRow& row : rows) {
    const bool seen = std::ranges::any_of(best, [&](const PlanRow& other) {
      return other.setting.stage == row.setting.stage && other.setting.homes == row.setting.homes;
    });
    if (!seen) best.push_back(row);
  }
  return best;
}

}  // namespace zeno::plan
