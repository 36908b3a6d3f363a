#include "zeno/report/page/report_series.h"

#include <algorithm>
#include <cmath>

namespace zeno::report {
namespace {

// Lowest, highest and first gap of a stretch, in order.
void append_extremes(std::span<const SeriesPoint> stretch, std::vector<SeriesPoint>& out) {
  size_t low = stretch.size(), high = stretch.size(), gap = stretch.size();
  for (size_t i = 0; i < stretch.size(); ++i) {
    if (!std::isfinite(stretch[i].y)) {
      gap = std::min(gap, i);
      continue;
    }
    if (low == stretch.size() || stretch[i].y < stretch[low].y) low = i;
    if (high == stretch.size() || stretch[i].y > stretch[high].y) high = i;
  }
  size_t keep[] = {low, high, gap};
  std::sort(std::begin(keep), std::end(keep));
  for (size_t k = 0; k < 3; ++k) {
    if (keep[k] == stretch.size() || (k > 0 && keep[k] == keep[k - 1])) continue;
    const SeriesPoint& point = stretch[keep[k]];
    out.push_back({point.x, std::isfinite(point.y) ? point.y : kGap});
  }
}

}  // namespace

std::vector<SeriesPoint> thin_out(std::span<const SeriesPoint> series, size_t points) {
  // Short ones are stretches of one point each. The ends of long ones are stretches of their own.
  const size_t n = series.size();
  const size_t stretches = n <= points ? n : std::max<size_t>(points / 2, 3);
  std::vector<SeriesPoint> out;
  out.reserve(2 * stretches);
  if (n <= points) {
    for (size_t i = 0; i < n; ++i) append_extremes(series.subspan(i, 1), out);
    return out;
  }
  append_extremes(series.first(1), out);
  const std::span<const SeriesPoint> inner = series.subspan(1, n - 2);
  for (size_t s = 0; s < stretches; ++s) {
    const size_t begin = inner.size() * s / stretches, end = inner.size() * (s + 1) / stretches;
    append_extremes(inner.subspan(begin, end - begin), out);
  }
  append_extremes(series.last(1), out);
  return out;
}

std::vector<SeriesPoint> smooth(std::span<const SeriesPoint> series, double window) {
  // Weights keep^|distance|: a sum from the left, one from the right, and the point itself once.
  const double keep = 1 - 2 / std::max(2.0, window);
  std::vector<double> sums(series.size()), weights(series.size());
  const auto sweep = [&](size_t i, double& sum, double& weight) {
    sums[i] += sum;
    weights[i] += weight;
    const bool known = std::isfinite(series[i].y);
    sum = keep * (sum + (known ? series[i].y : 0));
    weight = keep * (weight + (known ? 1 : 0));
  };
  double sum = 0, weight = 0;
  for (size_t i = 0; i < series.size(); ++i) sweep(i, sum, weight);
  sum = weight = 0;
  for (size_t i = series.size(); i-- > 0;) sweep(i, sum, weight);
  std::vector<SeriesPoint> out;
  out.reserve(series.size());
  for (size_t i = 0; i < series.size(); ++i) {
    const double y = series[i].y;
    out.push_back({series[i].x, std::isfinite(y) ? (sums[i] + y) / (weights[i] + 1) : kGap});
  }
  return out;
}

}  // namespace zeno::report
