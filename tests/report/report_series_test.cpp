#include "zeno/report/page/report_series.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace zeno::report {
namespace {

std::vector<SeriesPoint> wave(int64_t count) {
  std::vector<SeriesPoint> points;
  for (int64_t i = 0; i < count; ++i)
    points.push_back({i + 1, std::sin(0.37 * double(i)) + 0.001 * double(i)});
  return points;
}

TEST(ReportSeries, ShortCurvesStayAsTheyAre) {
  for (const int64_t count : {0, 1, 2, 7, 1500}) {
    const auto points = wave(count), thin = thin_out(points, 1500);
    ASSERT_EQ(thin.size(), points.size());
    for (size_t i = 0; i < thin.size(); ++i) {
      EXPECT_EQ(thin[i].x, points[i].x);
      EXPECT_EQ(thin[i].y, points[i].y);
    }
  }
}

TEST(ReportSeries, LongCurvesKeepEndsAndExtremes) {
  auto points = wave(100'000);
  points[31'337].y = 500;
  points[77'777].y = -500;
  const auto thin = thin_out(points, 1500);
  EXPECT_LE(thin.size(), 1510u);
  EXPECT_GE(thin.size(), 1400u);
  EXPECT_EQ(thin.front().x, 1);
  EXPECT_EQ(thin.back().x, 100'000);
  EXPECT_TRUE(std::is_sorted(thin.begin(), thin.end(), [](auto& a, auto& b) { return a.x < b.x; }));
  const auto [low, high] =
      std::minmax_element(thin.begin(), thin.end(), [](auto& a, auto& b) { return a.y < b.y; });
  EXPECT_EQ(low->x, 77'778);
  EXPECT_EQ(high->x, 31'338);
  for (const SeriesPoint& point : thin)
    EXPECT_EQ(point.y, points[size_t(point.x - 1)].y);  // nothing invented
}

TEST(ReportSeries, OneBadValueAmongManyIsNotLost) {
  for (const double bad : {std::nan(""), double(INFINITY)}) {
    auto points = wave(50'000);
    points[12'345].y = bad;
    const auto thin = thin_out(points, 1500);
    const auto gap = std::find_if(thin.begin(), thin.end(), [](auto& p) { return !std::isfinite(p.y); });
    ASSERT_NE(gap, thin.end());
    EXPECT_EQ(gap->x, 12'346);
    EXPECT_TRUE(std::isnan(gap->y));
    EXPECT_EQ(std::count_if(thin.begin(), thin.end(), [](auto& p) { return std::isnan(p.y); }), 1);
  }
}

TEST(ReportSeries, SmoothingIsAWeightedMeanOfBothSides) {
  auto points = wave(41);
  points[10].y = std::nan("");
  const double window = 8, keep = 1 - 2 / window;
  const auto smoothed = smooth(points, window);
  ASSERT_EQ(smoothed.size(), points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    if (i == 10) {
      EXPECT_TRUE(std::isnan(smoothed[i].y));
      continue;
    }
    double sum = 0, weight = 0;
    for (size_t j = 0; j < points.size(); ++j) {
      if (j == 10) continue;
      const double w = std::pow(keep, std::fabs(double(i) - double(j)));
      sum += w * points[j].y;
      weight += w;
    }
    EXPECT_NEAR(smoothed[i].y, sum / weight, 1e-12) << i;
    EXPECT_EQ(smoothed[i].x, points[i].x);
  }
}

}  // namespace
}  // namespace zeno::report
