#include "zeno/zero/policy.h"

#include <array>

#include "zeno/base/error.h"

namespace zeno::zero {

void apply_stage(Policy& policy, int stage) {
  require(stage >= 0 && stage < kStages, ErrorKind::usage, "[zero] stage: got {}, expected 0 to {}", stage,
          kStages - 1);
  const comm::Axes states = policy.sharding == Sharding::in_groups ? comm::kShardAxes : comm::kDataAxes;
  const comm::Axes params = policy.sharding == Sharding::everywhere ? comm::kDataAxes : comm::kShardAxes;
  struct Preset {
    bool params, grads, optimizer;  // whether they are sharded
  };
  static constexpr std::array<Preset, kStages> kPresets{
      {{false, false, false}, {false, false, true}, {false, true, true}, {true, true, true}}};
  const Preset& preset = kPresets[size_t(stage)];
  policy.params = preset.params ? params : comm::Axes{};
  policy.grads = preset.grads ? states : comm::Axes{};
  policy.optimizer = preset.optimizer ? states : comm::Axes{};
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
          "the axes of parameters and gradients among those of the optimizer states",
          describe(policy.params), describe(policy.grads), describe(policy.optimizer));
  // Sums inside each copy would be added across copies, which is another order than over all ranks.
  const bool copies = !policy.optimizer.empty() && policy.optimizer != mesh.needed(comm::kDataAxes);
  require(!policy.reproducible || !copies, ErrorKind::usage,
          "[zero] reproducible: got optimizer states that are sharded in groups of {} ranks, expected shards "
          "over all {}; "
          "leave out --shard-group or --reproducible",
          mesh.size(policy.optimizer), mesh.ranks());
  require(!policy.reproducible || !policy.coded_gradients, ErrorKind::usage,
          "[zero] reproducible: got gradients in blocks of few bits, whose rounding depends on the ranks, "
          "expected exact sums; leave out --quantized-gradients or --reproducible");
  require(
      !policy.reproducible || policy.reduction == comm::Reduction::tree, ErrorKind::usage,
      "[zero] reproducible: got native reductions, whose order of additions depends on the ranks, expected "
      "sums in the tree; leave out --reduction native or --reproducible");
  const bool staged = mesh.size(comm::Axis::pipe) > 1;
  require(
      !staged || policy.order == Order::horizontal, ErrorKind::usage,
      "[zero] order of micro-batches: got vertical and {} stages of a pipeline, expected one or the other; "
      "leave out --order vertical or --pipe",
      mesh.size(comm::Axis::pipe));
  require(!policy.reproducible || mesh.size(comm::Axis::context) == 1, ErrorKind::usage,
          "[zero] reproducible: got sequences that {} ranks share, whose gradients are sums of other parts, "
          "expected whole ones; leave out --context or --reproducible",
          mesh.size(comm::Axis::context));
  if (policy.reproducible) {
    if (!staged) policy.order = Order::vertical;
    policy.grads = policy.optimizer;
    policy.sparse_gradients = false;
  }
  if (policy.recompute != nn::Recompute::full) policy.recompute_every = 1;
  return policy;
}

}  // namespace zeno::zero
