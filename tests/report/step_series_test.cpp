#include "zeno/report/step_series.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace zeno::report {
namespace {

using Value = StepSeries::Value;

ReportStep wave_step(int64_t step) {
  return {
      .step = step, .loss = std::sin(0.37 * double(step)) + 2, .grad_norm = 1, .tokens_per_s = double(step)};
}

TEST(StepSeries, ShortRunsStayAsTheyAre) {
  StepSeries series;
  EXPECT_TRUE(series.empty());
  for (int64_t step = 1; step <= int64_t(StepSeries::kStretches); ++step) series.add(wave_step(step));
  const auto raw = series.extremes(Value::loss), means = series.means(Value::loss);
  const auto samples = series.samples();
  ASSERT_EQ(raw.size(), StepSeries::kStretches);
  ASSERT_EQ(means.size(), StepSeries::kStretches);
  ASSERT_EQ(samples.size(), StepSeries::kStretches);
  for (size_t i = 0; i < raw.size(); ++i) {
    const ReportStep step = wave_step(int64_t(i) + 1);
    EXPECT_EQ(raw[i].x, step.step);
    EXPECT_EQ(raw[i].y, step.loss);
    EXPECT_EQ(means[i].y, step.loss);
    EXPECT_EQ(samples[i].tokens_per_s, step.tokens_per_s);
  }
  EXPECT_FALSE(series.all_timed());
}

TEST(StepSeries, LongRunsKeepExtremesGapsMeansAndBothEnds) {
  constexpr int64_t kSteps = 1'000'003;
  StepSeries series;
  for (int64_t i = 1; i <= kSteps; ++i) {
    ReportStep step = wave_step(i);
    if (i == 313'370) step.loss = 500;
    if (i == 777'777) step.loss = -500;
    if (i == 555'555) step.loss = NAN;
    if (i == 600'000) step.loss = INFINITY;
    step.skipped = i % 100'000 == 0;
    series.add(step);
  }
  EXPECT_EQ(series.count(), kSteps);
  EXPECT_EQ(series.skipped(), 10);
  const auto raw = series.extremes(Value::loss);
  EXPECT_LE(raw.size(), 3 * StepSeries::kStretches);
  EXPECT_TRUE(std::is_sorted(raw.begin(), raw.end(), [](auto& a, auto& b) { return a.x < b.x; }));
  EXPECT_EQ(std::count_if(raw.begin(), raw.end(), [](auto& p) { return std::isnan(p.y); }), 2);
  const auto at = [&](int64_t x) {
    return std::find_if(raw.begin(), raw.end(), [x](const SeriesPoint& p) { return p.x == x; });
  };
  for (const auto& [x, y] : {std::pair{313'370, 500.0}, {777'777, -500.0}}) {
    ASSERT_NE(at(x), raw.end()) << x;
    EXPECT_EQ(at(x)->y, y);
  }
  ASSERT_NE(at(555'555), raw.end());
  EXPECT_TRUE(std::isnan(at(555'555)->y));
  // Nothing invented.
  for (const SeriesPoint& p : raw) {
    if (!std::isfinite(p.y) || std::abs(p.y) == 500) continue;
    ASSERT_EQ(p.y, wave_step(p.x).loss) << p.x;
  }
  const auto means = series.means(Value::tokens_per_s);
  ASSERT_LE(means.size(), StepSeries::kStretches);
  ASSERT_GE(means.size(), StepSeries::kStretches / 4);
  const auto width = double(series.steps_per_stretch());
  for (size_t i = 0; i + 1 < means.size(); ++i)
    ASSERT_DOUBLE_EQ(means[i].y, double(means[i].x) + (width - 1) / 2) << i;
  EXPECT_EQ(series.samples().front().step, 1);
  EXPECT_EQ(series.samples().back().step, kSteps);
  EXPECT_EQ(series.first_finite()->step, 1);
  EXPECT_EQ(series.last_finite()->step, kSteps);
}

}  // namespace
}  // namespace zeno::report
