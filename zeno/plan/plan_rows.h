// The table of a plan: the bytes of one rank for every stage, home of states, recompute and micro-batch, each
// planned by the code that books a run (zero::plan_memory). Nothing is allocated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "zeno/plan/groups.h"
#include "zeno/plan/offload.h"

namespace zeno::plan {

// Bytes of one rank by tier and purpose.
struct PlanBytes {
  std::array<std::array<size_t, kPurposes>, kTiers.size()> by_purpose{};
  size_t model_states = 0;  // parameters + gradients + masters + moments, on all tiers

  size_t at(Tier tier, Purpose purpose) const { return by_purpose[size_t(tier)][size_t(purpose)]; }
  size_t total(Tier tier) const;
};

// What is planned. Only a number of parameters: its states are those of the formula (estimate.h), and
// everything else comes from `layers`, of about that size.
struct PlanModel {
  const nn::LayerList& layers;
  std::optional<double> params;
};
// Parameters of a model.
double count_of(const nn::LayerList& layers);

// Of a rank: each tier as it is in the stage of the pipeline that needs most of it (zero::plan_memory).
PlanBytes plan_bytes(const PlanModel& model, const zero::EngineOptions& options);

// A stage of the pipeline, and the bytes of each of its ranks.
struct StageBytes {
  zero::Stage stage;
  std::string layers;  // "embed … blocks.9"
  double params = 0;   // of them
  PlanBytes bytes;
};
std::vector<StageBytes> plan_stages(const PlanModel& model, const zero::EngineOptions& options);
// Which of them needs most of each tier.
std::array<int, kTiers.size()> neediest_stages(Device::Kind kind, const std::vector<StageBytes>& stages);

// Where states live between uses. disk: optimizer states, at stage 3 parameters too. as_given: regardless of
// the options.
enum class Homes { as_given, device, optimizer_host, all_host, disk };
std::string_view name_of(Homes homes);  // "as given", "none", "optimizer cpu", "optimizer+param cpu", "nvme"

Homes homes_of(const zero::Offload& offload, int stage);

struct Setting {
  int stage = 0;
  Homes homes = Homes::device;
  nn::Recompute recompute = nn::Recompute::none;
  int64_t micro_batch = 1;
  bool overlap = false;  // communication overlaps computation
  Groups groups;
};
// `policy` and `options` with this setting.
zero::Policy with(zero::Policy policy, const Setting& setting);
zero::EngineOptions with(zero::EngineOptions options, const Setting& setting);
// "--stage 3 --offload-optimizer cpu --recompute full --micro-batch 4"
std::string flags_of(const Setting& setting);

struct PlanRow {
  Setting setting;
  PlanBytes bytes;
  size_t missing_device = 0, missing_host = 0;            // beyond the limits, where there are any
  std::optional<double> step_seconds, tokens_per_second;  // of all ranks; where the machine is known

  bool fits() const { return missing_device == 0 && missing_host == 0; }
};

// Compares the row with what a rank may use; a limit of 0 is none.
void set_missing(PlanRow& row, Device device, MemoryLimits limits);

// The choices that a table goes through, in order of their cost to the user.
struct PlanChoices {
  std::vector<int> stages;
  std::vector<Homes> homes;
  std::vector<nn::Recompute> recompute;
  std::vector<int64_t> micro_batches;  // rising; ends after the first that does not fit
  MemoryLimits limits;
  std::optional<bool> overlap;  // not given: the default of each stage
};
// All that make a difference: one rank shards nothing, and a CPU's device memory is the host's. Without
// limits, micro-batches up to 8.
PlanChoices all_choices(Device::Kind device, const comm::Mesh& mesh, MemoryLimits limits);

// Best first: what fits, by states near, little recompute, little sharding, large micro-batches; then
// settings that do not, by the missing memory.
std::vector<PlanRow> plan_rows(const PlanModel& model, const zero::EngineOptions& options,
                               const PlanChoices& choices);

// For each stage and home of states the best row; in the same order.
std::vector<PlanRow> best_rows(const std::vector<PlanRow>& rows);

}  // namespace zeno::plan
