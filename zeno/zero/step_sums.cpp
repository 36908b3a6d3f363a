#include "zeno/zero/step_sums.h"

#include <algorithm>
#include <cmath>

namespace zeno::zero {

StepOutcome combine(const StepSums* ranks, int count, double loss_scale, double clip) {
  StepOutcome outcome;
  ExactSum loss, squares;
  for (int r = 0; r < count; ++r) {
    loss.add(ranks[r].loss);
    squares.add(ranks[r].scan.squares);
    outcome.nonfinite += ranks[r].scan.nonfinite;
    if (ranks[r].scan.nonfinite > 0 && outcome.first_bad_rank < 0) outcome.first_bad_rank = r;
  }
  outcome.loss_sum = loss.value();
  if (outcome.nonfinite > 0) {
    outcome.grad_norm = std::numeric_limits<double>::quiet_NaN();
    outcome.grad_factor = 0;
    return outcome;
  }
  outcome.grad_norm = std::sqrt(squares.value()) / loss_scale;
  const double shrink = clip > 0 ? std::min(1.0, clip / (outcome.grad_norm + 1e-6)) : 1.0;
  outcome.grad_factor = float(shrink / loss_scale);
  return outcome;
}

}  // namespace zeno::zero
