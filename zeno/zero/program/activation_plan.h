// Checkpoints of recomputed segments on their way to host memory and back, as a part of the program.
//
// Backward takes turns: a segment over a micro-batch. The input of a segment that is recomputed leaves the
// device after its last use in forward, beside the computation of the next layer, and comes back into new
// memory beside the turn before its own. The first turns of a backward follow at once: what they need stays.
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

  // Emits what comes back while the turn that begins with step `s` runs, and notes where it will be.
  void before(int s, Outputs& outputs);
  // Emits what leaves now that step `s` has used it.
  void after(int s, const Outputs& outputs);

 private:
  void add(Lane lane, Key key, Action action);

  size_t bytes_;
  ProgramBuilder& builder_;
  std::map<int, Key> leaves_, returns_;  // by step
  Outputs on_host_;
  RegionId draining_ = kNoRegion;  // left with the step before
};

}  // namespace zeno::zero
