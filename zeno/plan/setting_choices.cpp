#include "zeno/plan/setting_choices.h"

#include <algorithm>

namespace zeno::plan {

PlanChoices open_choices(const config::ParsedConfig& parsed, const Setting& given, bool batch_open,
                         Device device, const comm::Mesh& mesh, MemoryLimits limits, bool disks) {
  PlanChoices choices = all_choices(device.kind, mesh, limits);
  const config::ZeroConfig& zero = parsed.config.zero;
  // Whose state is on which host has to be known before the planner is asked.
  const bool in_memory = parsed.config.run.peer_snapshot > 0;
  if (parsed.settled("zero_optimization.stage") || in_memory) choices.stages = {given.stage};
  const auto said = [&](config::OffloadDevice to, std::string_view key) {
    return to != config::OffloadDevice::automatic && (to != config::OffloadDevice::none || parsed.given(key));
  };
  const bool folder = !zero.offload_optimizer.nvme_path.empty() || !zero.offload_param.nvme_path.empty();
  if (!disks && !folder) std::erase(choices.homes, Homes::disk);
  if (said(zero.offload_optimizer.device, "zero_optimization.offload_optimizer.device") ||
      said(zero.offload_param.device, "zero_optimization.offload_param.device"))
    choices.homes = {Homes::as_given};
  const config::RecomputeMode mode = parsed.config.recompute.mode;
  if (mode != config::RecomputeMode::automatic &&
      (mode != config::RecomputeMode::none || parsed.given("zeno.recompute")))
    choices.recompute = {given.recompute};
  if (parsed.given("zero_optimization.overlap_comm")) choices.overlap = zero.overlap_comm;
  if (!batch_open) choices.micro_batches = {given.micro_batch};
  return choices;
}

}  // namespace zeno::plan
