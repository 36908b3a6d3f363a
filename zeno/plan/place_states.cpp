#include "zeno/plan/place_states.h"

#include "zeno/base/log.h"
#include "zeno/plan/recompute.h"

namespace zeno::plan {

void place_states(const config::TrainConfig& config, const nn::LayerList& layers,
                  zero::EngineOptions& options, MemoryLimits limits, bool trains) {
  const bool recompute = config.recompute.mode == config::RecomputeMode::automatic && trains;
  const bool offload = config.zero.offload_optimizer.device == config::OffloadDevice::automatic && trains;
  const int ranks = options.mesh.data_ranks();
  if (options.policy.offload.params != Tier::device && ranks > 1 && options.policy.params.empty() &&
      log_rank() <= 0)
    log_warning("zero_optimization.offload_param: no effect with {} ranks at stage {}: requires stage 3",
                ranks, config.zero.stage);
  if (options.policy.offload.activations && options.device.kind == Device::Kind::cpu && log_rank() <= 0)
    log_warning(
        "activation_checkpointing.cpu_checkpointing: no effect on a CPU, whose memory is already host "
        "memory");
  // Recompute takes compute and the link may hide: so states leave the device first.
  if (offload) options.policy.offload.optimizer = Tier::host;
  if (recompute) {
    choose_recompute(layers, options, limits.device);
    log_info("{}", describe_recompute(layers, options.policy));
  }
  if (offload) {
    options.policy.offload.optimizer = Tier::device;
    choose_offload(layers, options, limits, !options.disk.folders.empty());
  }
  widen_window(layers, options, limits);
  const std::string homes = describe_offload(layers, options);
  if (!homes.empty() && log_rank() <= 0) log_info("{}", homes);
}

}  // namespace zeno::plan
