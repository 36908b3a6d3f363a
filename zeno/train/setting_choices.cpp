#include "zeno/train/setting_choices.h"

#include <algorithm>

namespace zeno::train {

plan::PlanChoices open_choices(const ParsedConfig& parsed, const plan::Setting& given, bool batch_open,
                               Device device, int world, plan::MemoryLimits limits, bool disks) {
  plan::PlanChoices choices = plan::all_choices(device.kind, world, limits);
  const ZeroConfig& zero = parsed.config.zero;
  if (parsed.given("zero_optimization.stage")) choices.stages = {given.stage};
  const auto said = [&](OffloadDevice to, std::string_view key) {
    return to != OffloadDevice::automatic && (to != OffloadDevice::none || parsed.given(key));
  };
  const bool folder = !zero.offload_optimizer.nvme_path.empty() || !zero.offload_param.nvme_path.empty();
  if (!disks && !folder) std::erase(choices.homes, plan::Homes::disk);
  if (said(zero.offload_optimizer.device, "zero_optimization.offload_optimizer.device") ||
      said(zero.offload_param.device, "zero_optimization.offload_param.device"))
    choices.homes = {plan::Homes::as_given};
  const RecomputeMode mode = parsed.config.recompute.mode;
  if (mode != RecomputeMode::automatic && (mode != RecomputeMode::none || parsed.given("zeno.recompute")))
    choices.recompute = {given.recompute};
  if (parsed.given("zero_optimization.overlap_comm")) choices.overlap = zero.overlap_comm;
  if (!batch_open) choices.micro_batches = {given.micro_batch};
  return choices;
}

}  // namespace zeno::train
