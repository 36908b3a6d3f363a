#include "zeno/report/page/report_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "zeno/report/page/report_series.h"
#include "zeno/report/page/report_timeline.h"

namespace zeno::report {
namespace {

using nlohmann::json;

constexpr size_t kPoints = 1500;       // of a curve
constexpr int kTimelinePixels = 2000;  // of the timeline: finer spans are merged
constexpr size_t kMarkedEvents = 60;   // lines in a chart; the table has them all

struct Curve {
  std::string name, color, role;  // role: raw, smooth (of the one before), dots, line
  std::vector<SeriesPoint> points;
};

struct Chart {
  ReportFigure figure;
  std::string format;  // of its values: a function of the script
  bool log = false, from_zero = false, to_one = false;
  bool events = false;  // the main chart: taller, and marked with what happened
  std::vector<Curve> curves;
};

template <class Value>
std::vector<SeriesPoint> over_evals(const ReportData& data, const Value& value) {
  std::vector<SeriesPoint> points;
  for (const ReportEval& eval : data.evals) points.push_back({eval.step, value(eval)});
  return points;
}

// A noisy curve, and its mean where there is enough to average.
void add_noisy(std::vector<Curve>& curves, const std::string& name, const std::string& color,
               const StepSeries& steps, StepSeries::Value value) {
  constexpr int64_t kWorthSmoothing = 20;
  if (steps.empty()) return;
  curves.push_back({name, color, "raw", thin_out(steps.extremes(value), kPoints)});
  if (steps.count() < kWorthSmoothing) return;
  const double window =
      std::clamp(double(steps.count()) / 40, 6.0, 1000.0) / double(steps.steps_per_stretch());
  curves.push_back({fmt::format("{}, smoothed", name), color, "smooth",
                    thin_out(smooth(steps.means(value), window), kPoints)});
}

Chart loss_chart(const ReportData& data) {
  Chart chart{{"loss", "Loss", true}, "number", true, false, false, true, {}};
  add_noisy(chart.curves, "training", "train", data.steps, StepSeries::Value::loss);
  if (!data.evals.empty()) {
    const auto loss = [](const ReportEval& e) { return e.loss; };
    chart.curves.push_back({"evaluation", "eval", "dots", thin_out(over_evals(data, loss), kPoints)});
  }
  return chart;
}

Chart accuracy_chart(const ReportData& data) {
  Chart chart{{"accuracy", "Token accuracy (eval)"}, "percent", false, true, true, false, {}};
  const bool known =
      std::any_of(data.evals.begin(), data.evals.end(), [](auto& e) { return e.token_accuracy; });
  if (!known) return chart;
  const auto value = [](const ReportEval& e) { return e.token_accuracy.value_or(kGap); };
  chart.curves.push_back({"token accuracy", "eval", "dots", thin_out(over_evals(data, value), kPoints)});
  return chart;
}

Chart step_time_chart(const ReportData& data) {
  Chart chart{{"time", "Step time"}, "ms", false, true, false, false, {}};
  if (data.steps.empty()) return chart;
  add_noisy(chart.curves, "whole step", "train", data.steps, StepSeries::Value::step_ms);
  if (data.steps.all_timed())
    add_noisy(chart.curves, "exposed communication", "exposed", data.steps, StepSeries::Value::exposed_ms);
  return chart;
}

Chart lr_chart(const ReportData& data) {
  Chart chart{{"lr", "Learning rate"}, "number", false, true, false, false, {}};
  if (data.steps.empty()) return chart;
  chart.curves.push_back(
      {"learning rate", "train", "line", thin_out(data.steps.extremes(StepSeries::Value::lr), kPoints)});
  return chart;
}

Chart noisy_chart(const ReportData& data, ReportFigure figure, std::string format, bool log,
                  StepSeries::Value value) {
  Chart chart{std::move(figure), std::move(format), log, true, false, false, {}};
  add_noisy(chart.curves, "per step", "train", data.steps, value);
  return chart;
}

std::vector<Chart> charts_of(const ReportData& data) {
  std::vector<Chart> charts{
      loss_chart(data),
      lr_chart(data),
      noisy_chart(data, {"grad_norm", "Gradient norm"}, "number", true, StepSeries::Value::grad_norm),
      noisy_chart(data, {"speed", "Tokens per second"}, "rate", false, StepSeries::Value::tokens_per_s),
      step_time_chart(data),
      accuracy_chart(data),
  };
  std::erase_if(charts, [](const Chart& chart) { return chart.curves.empty(); });
  // Two columns under the wide first figure: an odd last one takes the row.
  if (charts.size() > 1 && charts.size() % 2 == 0) charts.back().figure.wide = true;
  return charts;
}

json to_json(const Curve& curve) {
  json x = json::array(), y = json::array();
  for (const SeriesPoint& point : curve.points) {
    x.push_back(point.x);
    y.push_back(point.y);  // NaN is written as null
  }
  return {{"name", curve.name}, {"color", curve.color}, {"role", curve.role}, {"x", x}, {"y", y}};
}

std::string_view name_of(ReportEvent::Kind kind) {
  constexpr std::string_view kNames[] = {"note", "checkpoint", "warning", "spike", "early_stop"};
  return kNames[int(kind)];
}

json to_json(const Chart& chart, const ReportData& data) {
  int64_t first = std::numeric_limits<int64_t>::max(), last = std::numeric_limits<int64_t>::min();
  json series = json::array(), events = json::array();
  for (const Curve& curve : chart.curves) {
    first = std::min(first, curve.points.front().x);
    last = std::max(last, curve.points.back().x);
    series.push_back(to_json(curve));
  }
  for (const ReportEvent& event : data.events) {
    if (!chart.events || event.step < first || event.step > last || events.size() == kMarkedEvents) continue;
    events.push_back({{"step", event.step}, {"kind", name_of(event.kind)}, {"text", event.text}});
  }
  return {{"id", chart.figure.id},
          {"description", fmt::format("{} over steps {} to {}", chart.figure.title, first, last)},
          {"tall", chart.events},
          {"format", chart.format},
          {"log", chart.log},
          {"from_zero", chart.from_zero},
          {"to_one", chart.to_one},
          {"range", {first, last}},
          {"series", series},
          {"events", events}};
}

json memory_json(const ReportData& data, Tier tier) {
  json purposes = json::array(), ranks = json::array();
  std::vector<size_t> used;
  for (size_t p = 0; p < size_t(kPurposes); ++p) {
    const auto has = [&](const RankMemory& m) { return m.by_purpose[size_t(tier)][p].planned > 0; };
    if (!std::any_of(data.memory.begin(), data.memory.end(), has)) continue;
    used.push_back(p);
    purposes.push_back(zeno::name_of(Purpose(p)));
  }
  for (const RankMemory& memory : data.memory) {
    json planned = json::array(), peak = json::array();
    for (const size_t p : used) {
      planned.push_back(memory.by_purpose[size_t(tier)][p].planned);
      peak.push_back(memory.by_purpose[size_t(tier)][p].peak);
    }
    const MemoryBytes& total = memory.total[size_t(tier)];
    ranks.push_back(
        {{"planned", planned}, {"peak", peak}, {"planned_total", total.planned}, {"peak_total", total.peak}});
  }
  return {{"name", zeno::name_of(tier)},
          {"description",
           fmt::format("{} memory of {} ranks by purpose", zeno::name_of(tier), data.memory.size())},
          {"limit", tier == Tier::device ? data.memory_limit : 0},
          {"purposes", purposes},
          {"ranks", ranks}};
}

json timeline_json(const Timeline& timeline) {
  json spans = json::array(), waits = json::array();
  const auto lane_index = [&](const std::string& lane) {
    return std::find(timeline.lanes.begin(), timeline.lanes.end(), lane) - timeline.lanes.begin();
  };
  for (const TimelineSpan& s : merge_narrow(timeline.spans, timeline.duration_ms, kTimelinePixels)) {
    spans.push_back({lane_index(s.lane), s.name, s.begin_ms, s.end_ms});
  }
  for (const TimelineSpan& s : merge_narrow(timeline.waits, timeline.duration_ms, kTimelinePixels)) {
    waits.push_back({s.name, s.begin_ms, s.end_ms});
  }
  return {{"description", fmt::format("rank {} in one step, by lane", timeline.rank)},
          {"duration", timeline.duration_ms},
          {"lanes", timeline.lanes},
          {"spans", spans},
          {"waits", waits}};
}

}  // namespace

std::vector<ReportFigure> report_curves(const ReportData& data) {
  std::vector<ReportFigure> figures;
  for (const Chart& chart : charts_of(data)) figures.push_back(chart.figure);
  return figures;
}

std::vector<Tier> tiers_in_use(const ReportData& data) {
  std::vector<Tier> tiers;
  for (const Tier tier : kTiers) {
    const auto has = [&](const RankMemory& m) { return m.total[size_t(tier)].planned > 0; };
    if (std::any_of(data.memory.begin(), data.memory.end(), has)) tiers.push_back(tier);
  }
  return tiers;
}

std::string report_json(const ReportData& data) {
  json document{{"charts", json::array()}, {"memory", json::array()}, {"timeline", nullptr}};
  for (const Chart& chart : charts_of(data)) document["charts"].push_back(to_json(chart, data));
  for (const Tier tier : tiers_in_use(data)) document["memory"].push_back(memory_json(data, tier));
  if (!data.timeline.spans.empty()) document["timeline"] = timeline_json(data.timeline);
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace zeno::report
