// What ranks must agree on in a step: the loss, the norm of the gradient and whether it is finite. Sums are
// exact, so their bits do not depend on how the work is divided.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "zeno/base/host_device.h"
#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"
#include "zeno/kernels/exact_sum.h"
#include "zeno/kernels/grad_scan.h"

namespace zeno::zero {

// One rank's contribution; plain bytes on the wire. Zero bytes are the empty sum.
struct StepSums {
  ExactSum loss;
  GradScan scan;
  int64_t hits = 0;  // evaluation: tokens that were predicted right
};

// A gradient element by group and index in it, as one number for the scan.
struct GradPlace {
  int group = 0;
  int64_t index = 0;

  static constexpr int kIndexBits = 44;
  ZENO_HOST_DEVICE uint64_t number() const { return uint64_t(group) << kIndexBits | uint64_t(index); }
  ZENO_HOST_DEVICE static GradPlace of(uint64_t number) {
    return {int(number >> kIndexBits), int64_t(number & ((uint64_t(1) << kIndexBits) - 1))};
  }
};

// The result, the same on every rank.
struct StepOutcome {
  double loss_sum = 0;      // over all valid tokens of all ranks
  double grad_norm = 0;     // unscaled, before clipping; NaN when the gradient is not finite
  int64_t nonfinite = 0;    // gradient elements that are inf or NaN
  GradPlace first_bad;      // of them, in table order
  int first_bad_rank = -1;  // the rank that holds it
  float grad_factor = 1;    // 1 / (loss scale · clip); 0: skip the update
  int64_t hits = 0;
};

// `clip` 0: no clipping.
ZENO_HOST_DEVICE inline StepOutcome combine(const StepSums* ranks, int count, double loss_scale,
                                            double clip) {
  StepOutcome outcome;
  ExactSum loss, squares;
  uint64_t first_bad = 0;
  for (int r = 0; r < count; ++r) {
    loss.add(ranks[r].loss);
    squares.add(ranks[r].scan.squares);
    outcome.nonfinite += ranks[r].scan.nonfinite;
    outcome.hits += ranks[r].hits;
    if (ranks[r].scan.first_bad > first_bad) {
      first_bad = ranks[r].scan.first_bad;
      outcome.first_bad_rank = r;
    }
  }
  outcome.first_bad = GradPlace::of(~first_bad);
  outcome.loss_sum = loss.value();
  if (outcome.nonfinite > 0) {
    outcome.grad_norm = std::numeric_limits<double>::quiet_NaN();
    outcome.grad_factor = 0;
    return outcome;
  }
  outcome.grad_norm = std::sqrt(squares.value()) / loss_scale;
  const double wanted = clip > 0 ? clip / (outcome.grad_norm + 1e-6) : 1.0;
  outcome.grad_factor = float((wanted < 1.0 ? wanted : 1.0) / loss_scale);
  return outcome;
}

// *sum += all of `hits` (i32), on the stream's device, where *sum lives.
void add_hits(StreamRef stream, Tensor hits, int64_t* sum);
// combine() on the stream's device, where the sums and the outcome live.
void combine_async(StreamRef stream, const StepSums* ranks, int count, double loss_scale, double clip,
                   StepOutcome* outcome);

}  // namespace zeno::zero
