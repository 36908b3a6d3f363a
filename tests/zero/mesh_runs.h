// Placements on a mesh that tests of threads and of processes share.
#pragma once

#include <vector>

#include "tests/support/train_run.h"

namespace zeno::zero {

struct Placements {
  const char* name;
  comm::Axes params, grads, optimizer;

  void apply(Policy& policy) const {
    policy.params = params;
    policy.grads = grads;
    policy.optimizer = optimizer;
  }
};

inline const std::vector<Placements>& all_placements() {
  using comm::kDataAxes;
  using comm::kShardAxes;
  static const std::vector<Placements> all{
      {"stage 0", {}, {}, {}},
      {"stage 1", {}, {}, kDataAxes},
      {"stage 2", {}, kDataAxes, kDataAxes},
      {"stage 3", kDataAxes, kDataAxes, kDataAxes},
      {"stage 1 in groups", {}, {}, kShardAxes},
      {"stage 2 in groups", {}, kShardAxes, kShardAxes},
      {"stage 3 in groups", kShardAxes, kShardAxes, kShardAxes},
      {"parameters in groups", kShardAxes, kDataAxes, kDataAxes},
      {"parameters and gradients in groups", kShardAxes, kShardAxes, kDataAxes},
      {"parameters in groups, whole gradients", kShardAxes, {}, kDataAxes},
      {"gradients in groups", {}, kShardAxes, kDataAxes},
  };
  return all;
}

// Bytes that the ranks of a host receive from other hosts in a step of the compiled program, the sums of
// losses and norms left out: nothing else crosses.
inline int64_t bytes_across(const CompiledStep& step) {
  const int near = step.mesh.size(comm::kShardAxes);
  int64_t bytes = 0;
  for (const Instruction& in : step.program.instructions) {
    const auto use = comm_use_of(in);
    if (!use || !use->over.has(comm::Axis::outer) || in.is<Norm>()) continue;
    const ProgramTraffic traffic = traffic_of({.instructions = {in}}, step.units, step.mesh);
    bytes += near * (traffic.gathered * int64_t(size_of(step.policy.compute)) + traffic.cell_bytes +
                     traffic.coded_bytes + traffic.reduced * int64_t(size_of(step.policy.grad)));
  }
  return bytes;
}

}  // namespace zeno::zero
