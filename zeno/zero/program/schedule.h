// The order of computation in a step: which layer runs over which micro-batch, in forward, recompute and
// backward. Knows nothing of memory or communication.
#pragma once

#include <vector>

#include "zeno/zero/program/program.h"

namespace zeno::zero {

enum class Pass { forward, recompute, loss, backward };

struct ComputeStep {
  Pass pass = Pass::forward;
  int layer = 0;  // units.loss_layer() for loss
  int micro_batch = 0;
  // Steps of one phase use the same units, so none is released within it.
  int phase = 0;
};

// Layers [first, last], which are recomputed and run backward together; the input of `first` is their
// checkpoint.
struct Segment {
  int first = 0, last = 0;
  bool recompute = false;
  nn::Recompute keep = nn::Recompute::none;  // what its layers save for backward
};

std::vector<Segment> make_segments(const CompileInput& input);
std::vector<ComputeStep> make_schedule(const CompileInput& input, const std::vector<Segment>& segments);
// The schedule of an evaluation: no backward.
std::vector<ComputeStep> make_evaluation_schedule(const CompileInput& input);

}  // namespace zeno::zero
