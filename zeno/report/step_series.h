// The steps of a run of any length in bounded memory, for the curves of the report. Short runs are kept
// unchanged; when there is no room left, neighbours are merged into intervals, which keep the highest and the
// lowest value, the first gap and the mean of every quantity. For one thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "zeno/report/page/report_series.h"

namespace zeno::report {

// One optimizer step; values may be NaN.
struct ReportStep {
  int64_t step = 0;
  double loss = 0, grad_norm = 0, lr = 0, tokens_per_s = 0, step_ms = 0;
  std::optional<double> exposed_ms;
  bool skipped = false;
};

class StepSeries {
 public:
  enum class Value { loss, grad_norm, lr, tokens_per_s, step_ms, exposed_ms };
  static constexpr size_t kStretches = 4096;  // at most

  void add(const ReportStep& step);

  bool empty() const { return count_ == 0; }
  int64_t count() const { return count_; }  // steps that were added
  int64_t skipped() const { return skipped_; }
  bool all_timed() const { return all_timed_; }  // every step has exposed_ms
  int64_t steps_per_stretch() const { return width_; }
  // Some steps in order, the first of every interval and the last one; all of them in a short run.
  std::vector<ReportStep> samples() const;
  // The first and the last step whose loss is finite; empty if there is none.
  const std::optional<ReportStep>& first_finite() const { return first_finite_; }
  const std::optional<ReportStep>& last_finite() const { return last_finite_; }
  // Lowest value, highest value and first gap of every interval, in order.
  std::vector<SeriesPoint> extremes(Value value) const;
  // The mean of every interval; NaN if it has no finite value.
  std::vector<SeriesPoint> means(Value value) const;

 private:
  static constexpr size_t kValues = 6;
  struct Range {
    SeriesPoint low, high;
    double sum = 0;
    int64_t finite = 0;  // values in the sum
    int64_t gap = -1;    // the first step without a finite value; -1: none
    void add(const SeriesPoint& point);
    void merge(const Range& later);
  };
  struct Stretch {
    ReportStep first;
    std::array<Range, kValues> values;
  };
  void halve();

  std::vector<Stretch> stretches_;
  int64_t width_ = 1;   // steps per interval
  int64_t filled_ = 0;  // steps of the last one
  int64_t count_ = 0, skipped_ = 0;
  bool all_timed_ = true;
  ReportStep last_;
  std::optional<ReportStep> first_finite_, last_finite_;
};

}  // namespace zeno::report
