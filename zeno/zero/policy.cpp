#include "zeno/zero/policy.h"

#include <array>

namespace zeno::zero {

void apply_stage(Policy& policy, int stage) {
  using enum Placement;
  struct Preset {
    Placement params, grads, optimizer;
  };
  static constexpr std::array<Preset, kStages> kPresets{{{replicated, replicated, replicated},
                                                         {replicated, replicated, sharded},
                                                         {replicated, sharded, sharded},
                                                         {sharded, sharded, sharded}}};
  require(stage >= 0 && stage < kStages, ErrorKind::usage, "[zero] stage: got {}, expected 0 to {}", stage,
          kStages - 1);
  policy.params = kPresets[stage].params;
  policy.grads = kPresets[stage].grads;
  policy.optimizer = kPresets[stage].optimizer;
}

bool shards_parameters(int stage) {
  Policy policy;
  apply_stage(policy, stage);
  return policy.params == Placement::sharded;
}

Policy normalized(Policy policy, int world) {
  if (world == 1) policy.params = policy.grads = policy.optimizer = Placement::replicated;
  if (policy.reproducible) {
    policy.order = Order::vertical;
    policy.grads = policy.optimizer;
    policy.sparse_gradients = false;
  }
  if (policy.recompute != nn::Recompute::full) policy.recompute_every = 1;
  return policy;
}

}  // namespace zeno::zero
