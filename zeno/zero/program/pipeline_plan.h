// The messages between the stages of a pipeline, as a part of the program: activations to the next stage,
// their gradients to the previous one, and the gradients of parameters that two stages use.
//
// Both neighbours must issue their messages in the same order, although each sends to the other. So at the
// end of a backward a stage receives the next activation before it sends the gradient, because the previous
// stage issues them in that order too. After the last forward, gradients are sent at once.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "zeno/zero/program/program_builder.h"
#include "zeno/zero/program/schedule.h"

namespace zeno::zero {

class PipelinePlan {
 public:
  // Outputs of layers, by (layer, micro-batch), and gradients of activations, by micro-batch.
  using Outputs = std::map<std::pair<int, int>, RegionId>;
  using Gradients = std::map<int, RegionId>;

  PipelinePlan(const CompileInput& input, const std::vector<ComputeStep>& steps, ProgramBuilder& builder);

  // Emits the receives that step `s` needs, and records where the values will be.
  void before(int s, Outputs& outputs, Gradients& gradients);
  // Emits, or defers, the sends of what other stages need from step `s`.
  void after(int s, const Outputs& outputs, const Gradients& gradients);
  // Emits the deferred sends.
  void flush();
  // Gives both stages that use a group the sum of their gradients, once all other gradients are complete.
  void sum_tied();

 private:
  RegionId receive(int from, int boundary, int mb);
  void send(int to, int boundary, int mb, RegionId region);
  void add(Lane lane, int unit, int mb, Action action);
  // Whether any layer before this one is trained.
  bool trains_before(int layer) const { return input_.units.first_trained() < layer; }

  const CompileInput& input_;
  const Stage& stage_;
  const std::vector<ComputeStep>& steps_;
  ProgramBuilder& builder_;
  int64_t elements_;                               // of an activation
  std::vector<std::pair<int, RegionId>> put_off_;  // gradients, by micro-batch
  std::vector<RegionId> draining_;                 // sent last: sending may take as long as the next step
};

}  // namespace zeno::zero
