#include "zeno/plan/goodput.h"

#include <algorithm>
#include <cmath>

namespace zeno::plan {

double run_mtbf(double device_hours, int ranks) { return device_hours * 3600 / ranks; }

// A segment is `interval` of training and one stall. With failures at rate 1/M, the time until a segment is
// through without one is M·(e^(segment/M) − 1), and each of its e^(segment/M) − 1 expected failures costs,
// beside the time since the segment began, a restart and the training that was done while the checkpoint at
// its beginning was still on its way: that is done again.
double goodput(const Failures& failures, double interval) {
  const double failed = std::expm1((interval + failures.stall) / failures.between);
  const double lost = failures.restart + failures.commit;
  const double time = (failures.between + lost) * failed;
  return std::isfinite(time) ? interval / time : 0;
}

// Goodput rises to one maximum and falls again, so thirds of the range can be thrown away. It is looked for
// in logarithms: intervals of a second and of a week are both possible.
double best_interval(const Failures& failures) {
  double low = std::log(std::max({failures.commit, failures.stall, 1e-3}));
  double high = std::max(low, std::log(10 * failures.between));
  for (int i = 0; i < 200; ++i) {
    const double third = (high - low) / 3;
    if (goodput(failures, std::exp(low + third)) < goodput(failures, std::exp(high - third)))
      low += third;
    else
      high -= third;
  }
  return std::exp((low + high) / 2);
}

}  // namespace zeno::plan
