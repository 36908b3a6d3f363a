// Curves of any length made short enough to draw, without losing what the eye looks for: the highest and the
// lowest value of every interval, the gaps, the first and the last point.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace zeno::report {

struct SeriesPoint {
  int64_t x = 0;
  double y = 0;  // kGap: a gap, and a mark that says so
};
inline constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

// At most about `points`; short curves are returned unchanged. Infinities count as gaps.
std::vector<SeriesPoint> thin_out(std::span<const SeriesPoint> series, size_t points);

// Mean with weights that fall off exponentially to both sides, over about `window` points: no lag, as the
// whole curve is known. Gaps stay gaps.
std::vector<SeriesPoint> smooth(std::span<const SeriesPoint> series, double window);

}  // namespace zeno::report
