// Moves the checkpoints of recomputed segments to host memory and back, as a part of the program.
//
// Backward takes turns: in each it runs one segment over one micro-batch. The input of a recomputed segment
// leaves the device after its last use in forward, while the next layer computes, and comes back into new
// memory during the turn before its own. What the first turns need stays, because they follow at once.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "zeno/zero/program/program_builder.h"
#include "zeno/zero/program/schedule.h"

namespace zeno::zero {

class ActivationPlan {
 public:
  // The output of a layer, by (layer, micro-batch).
  using Key = std::pair<int, int>;
  using Outputs = std::map<Key, RegionId>;

  ActivationPlan(const CompileInput& input, const std::vector<ComputeStep>& steps, ProgramBuilder& builder);

  // Emits fetches of what comes back during the turn that begins with step `s`, and records where it will be.
  void before(int s, Outputs& outputs);
  // Emits stores of what can leave once step `s` has used it.
  void after(int s, const Outputs& outputs);

 private:
  void add(Lane lane, Key key, Action action);

  size_t bytes_;
  ProgramBuilder& builder_;
  std::map<int, Key> leaves_, returns_;  // by step
  Outputs on_host_;
  RegionId draining_ = kNoRegion;  // the last one that left
};

}  // namespace zeno::zero
