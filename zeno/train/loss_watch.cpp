#include "zeno/train/loss_watch.h"

#include <cmath>
#include <numeric>

namespace zeno::train {

double LossWatch::mean() const {
  if (state_.recent.empty()) return 0;
  return std::accumulate(state_.recent.begin(), state_.recent.end(), 0.0) / double(state_.recent.size());
}

LossWatch::Verdict LossWatch::judge(double loss, bool skipped) const {
  if (!std::isfinite(loss) || (skipped && !overflows_are_normal_)) return Verdict::not_finite;
  const bool told = config_.spike_factor > 0 && state_.recent.size() >= kWarmUp;
  return told && loss > config_.spike_factor * mean() ? Verdict::spike : Verdict::good;
}

LossWatch::Verdict LossWatch::look(double loss, bool skipped) {
  const Verdict verdict = judge(loss, skipped);
  state_.bad = verdict == Verdict::good ? 0 : state_.bad + 1;
  // Spikes are part of the mean too, so a loss that stays high is not reported as one spike after another.
  if (verdict != Verdict::not_finite) state_.recent.push_back(loss);
  if (state_.recent.size() > kWindow) state_.recent.pop_front();
  return verdict;
}

}  // namespace zeno::train
