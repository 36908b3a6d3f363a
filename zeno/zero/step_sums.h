// What ranks must agree on in a step: the loss, the norm of the gradient and whether it is finite. Sums are
// exact, so their bits do not depend on who summed what.
#pragma once

#include <cstdint>
#include <limits>

#include "zeno/kernels/exact_sum.h"
#include "zeno/kernels/grad_scan.h"

namespace zeno::zero {

// One rank's contribution; plain bytes on the wire.
struct StepSums {
  ExactSum loss;
  GradScan scan;
};

// What comes out, the same on every rank.
struct StepOutcome {
  double loss_sum = 0;      // over all valid tokens of all ranks
  double grad_norm = 0;     // unscaled, before clipping; NaN when the gradient is not finite
  int64_t nonfinite = 0;    // gradient elements that are inf or NaN
  int first_bad_rank = -1;  // lowest rank that holds one
  float grad_factor = 1;    // 1 / (loss scale · clip); 0: skip the update
};

// `clip` 0: no clipping.
StepOutcome combine(const StepSums* ranks, int count, double loss_scale, double clip);

}  // namespace zeno::zero
