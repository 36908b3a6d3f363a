#include "zeno/report/page/report_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "zeno/device/ledger.h"
#include "zeno/page/html_table.h"
#include "zeno/report/progress.h"

namespace zeno::report {
namespace {

using page::Table, page::tile;

constexpr size_t kRows = 20;  // of a curve's table

std::string four_digits(double value) {
  return std::isfinite(value) ? fmt::format("{:.4g}", value) : "not finite";
}
std::string milliseconds(double value) {
  return std::isfinite(value) ? fmt::format("{:.2f} ms", value) : "?";
}

// At most kRows indices of 0 … count-1, evenly spread, with both ends.
std::vector<size_t> spread(size_t count) {
  std::vector<size_t> picked;
  const size_t rows = std::min(count, kRows);
  for (size_t i = 0; i < rows; ++i) picked.push_back(rows == 1 ? 0 : i * (count - 1) / (rows - 1));
  return picked;
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

std::string loss_tiles(const ReportData& data) {
  std::string out;
  const auto finite = [](const auto& point) { return std::isfinite(point.loss); };
  const auto &first = data.steps.first_finite(), &last = data.steps.last_finite();
  if (last) {
    out += tile(
        "Training loss", four_digits(last->loss),
        first->step == last->step ? "" : fmt::format("{} at step {}", four_digits(first->loss), first->step));
  }
  const ReportEval* best = nullptr;
  for (const ReportEval& eval : data.evals) {
    if (finite(eval) && (best == nullptr || eval.loss < best->loss)) best = &eval;
  }
  if (best == nullptr) return out;
  out += tile("Best eval loss", four_digits(best->loss),
              fmt::format("perplexity {}, step {}", four_digits(best->perplexity), best->step));
  if (best->token_accuracy)
    out += tile("Token accuracy", format_percent(*best->token_accuracy), "at best eval loss");
  return out;
}

std::string memory_tile(const ReportData& data) {
  MemoryBytes most;
  for (const RankMemory& memory : data.memory) {
    const MemoryBytes& total = memory.total[size_t(Tier::device)];
    if (total.peak >= most.peak) most = total;
  }
  if (data.memory.empty()) return "";
  return tile("Memory per rank", format_bytes(most.peak),
              fmt::format("of {} planned", format_bytes(most.planned)));
}

}  // namespace

std::string summary_tiles(const ReportData& data) {
  std::string out = "<dl class=\"tiles\">\n" + loss_tiles(data);
  if (!data.steps.empty()) {
    std::vector<double> rates;
    for (const SeriesPoint& mean : data.steps.means(StepSeries::Value::tokens_per_s)) rates.push_back(mean.y);
    const int64_t skipped = data.steps.skipped();
    out += tile("Steps", fmt::format("{}", data.steps.samples().back().step),
                skipped > 0 ? fmt::format("{} skipped", skipped) : "none skipped");
    out += tile("Tokens / s", format_rate(median(rates)), "median");
  }
  if (data.result.duration_s > 0) {
    out +=
        tile("Duration", format_duration(data.result.duration_s),
             data.result.tokens > 0 ? fmt::format("{} tokens", format_rate(double(data.result.tokens))) : "");
  }
  out += memory_tile(data);
  if (data.timeline.duration_ms > 0) {
    out += tile("Exposed comm.", format_percent(data.timeline.exposed_ms() / data.timeline.duration_ms),
                fmt::format("of a {:.4g} ms step", data.timeline.duration_ms));
  }
  return out + "</dl>\n";
}

std::string curve_table(const ReportData& data) {
  Table table{"", {"step", "loss", "gradient norm", "learning rate", "tokens/s", "step time", "exposed"}, {}};
  const std::vector<ReportStep> steps = data.steps.samples();
  for (const size_t i : spread(steps.size())) {
    const ReportStep& s = steps[i];
    table.rows.push_back({fmt::format("{}{}", s.step, s.skipped ? " (skipped)" : ""), four_digits(s.loss),
                          four_digits(s.grad_norm), four_digits(s.lr), format_rate(s.tokens_per_s),
                          milliseconds(s.step_ms), s.exposed_ms ? milliseconds(*s.exposed_ms) : ""});
  }
  return to_html(table);
}

std::string eval_table(const ReportData& data) {
  Table table{"", {"step", "eval loss", "perplexity", "token accuracy"}, {}};
  for (const size_t i : spread(data.evals.size())) {
    const ReportEval& e = data.evals[i];
    table.rows.push_back({fmt::format("{}", e.step), four_digits(e.loss), four_digits(e.perplexity),
                          e.token_accuracy ? format_percent(*e.token_accuracy) : ""});
  }
  return to_html(table);
}

std::string memory_table(const ReportData& data, Tier tier) {
  const auto cells = [](std::string name, const MemoryBytes& bytes) {
    return std::vector<std::string>{std::move(name), format_bytes(bytes.planned), format_bytes(bytes.peak)};
  };
  Table purposes{"By purpose, largest rank", {"purpose", "planned", "peak in use"}, {}};
  for (size_t p = 0; p < size_t(kPurposes); ++p) {
    MemoryBytes most;
    for (const RankMemory& memory : data.memory) {
      const MemoryBytes& bytes = memory.by_purpose[size_t(tier)][p];
      most = {std::max(most.planned, bytes.planned), std::max(most.peak, bytes.peak)};
    }
    if (most.planned > 0) purposes.rows.push_back(cells(std::string(name_of(Purpose(p))), most));
  }
  Table ranks{"By rank", {"rank", "planned", "peak in use"}, {}};
  for (size_t r = 0; r < data.memory.size(); ++r) {
    ranks.rows.push_back(cells(fmt::format("{}", r), data.memory[r].total[size_t(tier)]));
  }
  return to_html(purposes) + to_html(ranks);
}

std::string timeline_table(const Timeline& timeline) {
  std::map<std::string, double> busy;
  for (const TimelineSpan& span : timeline.spans) busy[span.lane] += span.end_ms - span.begin_ms;
  Table lanes{"Lanes", {"lane", "busy", "share of the step"}, {}};
  const auto add = [&](const std::string& name, double ms) {
    lanes.rows.push_back(
        {name, milliseconds(ms), format_percent(timeline.duration_ms > 0 ? ms / timeline.duration_ms : 0)});
  };
  for (const std::string& lane : timeline.lanes) add(lane, busy[lane]);
  add("exposed communication", timeline.exposed_ms());
  std::vector<TimelineSpan> waits = timeline.waits;
  std::stable_sort(waits.begin(), waits.end(), [](const TimelineSpan& a, const TimelineSpan& b) {
    return a.end_ms - a.begin_ms > b.end_ms - b.begin_ms;
  });
  waits.resize(std::min<size_t>(waits.size(), 10));
  if (waits.empty()) return to_html(lanes);
  Table longest{"Longest waits of computation", {"what", "how long", "from"}, {}};
  for (const TimelineSpan& wait : waits) {
    longest.rows.push_back(
        {wait.name, milliseconds(wait.end_ms - wait.begin_ms), milliseconds(wait.begin_ms)});
  }
  return to_html(lanes) + to_html(longest);
}

std::string event_table(const ReportData& data) {
  constexpr std::string_view kNames[] = {"note", "checkpoint", "warning", "spike", "early stop"};
  Table table{"", {"step", "kind", "what"}, {}, true};
  if (data.more_events > 0)
    table.caption = fmt::format("The first {} of {}; the log has all of them", data.events.size(),
                                int64_t(data.events.size()) + data.more_events);
  for (const ReportEvent& event : data.events) {
    table.rows.push_back({fmt::format("{}", event.step), std::string(kNames[int(event.kind)]), event.text});
  }
  return to_html(table);
}

std::string setting_table(const ReportData& data) {
  Table table{"", {"setting", "value", "from"}, {}, true};
  for (const ReportSetting& s : data.settings) table.rows.push_back({s.key, s.value, s.source});
  return to_html(table);
}

}  // namespace zeno::report
