#include "zeno/zero/policy.h"

#include "zeno/base/error.h"

namespace zeno::zero {

void apply_stage(Policy& policy, int stage, comm::Axes axes) {
  require(stage >= 0 && stage < kStages, ErrorKind::usage, "[zero] stage: got {}, expected 0 to {}", stage,
          kStages - 1);
  const auto from = [&](int first) { return stage >= first ? axes : comm::Axes{}; };
  policy.optimizer = from(1);
  policy.grads = from(2);
  policy.params = from(3);
}

bool shards_parameters(int stage) {
  Policy policy;
  apply_stage(policy, stage);
  return !policy.params.empty();
}

Policy normalized(Policy policy, const comm::Mesh& mesh) {
  for (comm::Axes* axes : {&policy.params, &policy.grads, &policy.optimizer}) *axes = mesh.needed(*axes);
  require(policy.optimizer.has(policy.params | policy.grads), ErrorKind::usage,
          "[zero] parameters are sharded over {}, gradients over {} and optimizer states over {}, expected "
          "the axes of "
          "parameters and gradients among those of the optimizer states",
          describe(policy.params), describe(policy.grads), describe(policy.optimizer));
  if (policy.reproducible) {
    policy.order = Order::vertical;
    policy.grads = policy.optimizer;
    policy.sparse_gradients = false;
  }
  if (policy.recompute != nn::Recompute::full) policy.recompute_every = 1;
  return policy;
}

}  // namespace zeno::zero
