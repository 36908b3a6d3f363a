#include "zeno/train/loss_watch.h"

#include <cmath>
#include <numeric>

namespace zeno::train {

double LossWatch::mean() const {
  if (recent_.empty()) return 0;
  return std::accumulate(recent_.begin(), recent_.end(), 0.0) / double(recent_.size());
}

LossWatch::Verdict LossWatch::judge(double loss, bool skipped) const {
  if (!std::isfinite(loss) || (skipped && !overflows_are_normal_)) return Verdict::not_finite;
  const bool told = config_.spike_factor > 0 && recent_.size() >= kWarmUp;
  return told && loss > config_.spike_factor * mean() ? Verdict::spike : Verdict::good;
}

LossWatch::Verdict LossWatch::look(double loss, bool skipped) {
  const Verdict verdict = judge(loss, skipped);
  bad_ = verdict == Verdict::good ? 0 : bad_ + 1;
  // A spike joins the mean too: a loss that stays high is the new normal, not one spike after another.
  if (verdict != Verdict::not_finite) recent_.push_back(loss);
  if (recent_.size() > kWindow) recent_.pop_front();
  return verdict;
}

}  // namespace zeno::train
