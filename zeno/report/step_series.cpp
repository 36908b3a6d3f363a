#include "zeno/report/step_series.h"

#include <algorithm>
#include <cmath>

namespace zeno::report {

void StepSeries::Range::add(const SeriesPoint& point) {
  if (!std::isfinite(point.y)) {
    if (gap < 0) gap = point.x;
    return;
  }
  if (finite == 0 || point.y < low.y) low = point;
  if (finite == 0 || point.y > high.y) high = point;
  sum += point.y;
  ++finite;
}

void StepSeries::Range::merge(const Range& later) {
  if (gap < 0) gap = later.gap;
  if (later.finite == 0) return;
  if (finite == 0 || later.low.y < low.y) low = later.low;
  if (finite == 0 || later.high.y > high.y) high = later.high;
  sum += later.sum;
  finite += later.finite;
}

void StepSeries::add(const ReportStep& step) {
  if (stretches_.size() == kStretches && filled_ == width_) halve();
  if (stretches_.empty() || filled_ == width_) {
    stretches_.push_back({.first = step, .values = {}});
    filled_ = 0;
  }
  const double values[kValues] = {step.loss,         step.grad_norm, step.lr,
                                  step.tokens_per_s, step.step_ms,   step.exposed_ms.value_or(kGap)};
  for (size_t i = 0; i < kValues; ++i) stretches_.back().values[i].add({step.step, values[i]});
  ++filled_;
  ++count_;
  skipped_ += step.skipped;
  all_timed_ = all_timed_ && step.exposed_ms;
  last_ = step;
  if (!std::isfinite(step.loss)) return;
  if (!first_finite_) first_finite_ = step;
  last_finite_ = step;
}

void StepSeries::halve() {
  for (size_t i = 0; i < kStretches / 2; ++i) {
    Stretch merged = stretches_[2 * i];
    for (size_t v = 0; v < kValues; ++v) merged.values[v].merge(stretches_[2 * i + 1].values[v]);
    stretches_[i] = merged;
  }
  stretches_.resize(kStretches / 2);
  width_ *= 2;
  filled_ = width_;
}

std::vector<ReportStep> StepSeries::samples() const {
  std::vector<ReportStep> samples;
  for (const Stretch& stretch : stretches_) samples.push_back(stretch.first);
  if (filled_ > 1) samples.push_back(last_);
  return samples;
}

std::vector<SeriesPoint> StepSeries::extremes(Value value) const {
  std::vector<SeriesPoint> points;
  for (const Stretch& stretch : stretches_) {
    const Range& range = stretch.values[size_t(value)];
    const auto begin = std::ptrdiff_t(points.size());
    if (range.gap >= 0) points.push_back({range.gap, kGap});
    if (range.finite > 0) points.push_back(range.low);
    if (range.finite > 0 && range.high.x != range.low.x) points.push_back(range.high);
    std::sort(points.begin() + begin, points.end(), [](auto& a, auto& b) { return a.x < b.x; });
  }
  return points;
}

std::vector<SeriesPoint> StepSeries::means(Value value) const {
  std::vector<SeriesPoint> points;
  for (const Stretch& stretch : stretches_) {
    const Range& range = stretch.values[size_t(value)];
    points.push_back({stretch.first.step, range.finite > 0 ? range.sum / double(range.finite) : kGap});
  }
  return points;
}

}  // namespace zeno::report
