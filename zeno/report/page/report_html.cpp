#include "zeno/report/page/report_html.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "zeno/device/ledger.h"
#include "zeno/page/html_page.h"
#include "zeno/page/html_table.h"
#include "zeno/page/html_text.h"
#include "zeno/report/page/report_assets.h"
#include "zeno/report/page/report_json.h"
#include "zeno/report/page/report_tables.h"

namespace zeno::report {
namespace {

using page::Figure, page::html_text;

std::string intro(const ReportData& data) {
  const ReportResult& result = data.result;
  std::string out = fmt::format("<header>\n<h1>{}</h1>\n", html_text(data.title));
  out += fmt::format("<p><span class=\"status{}\">{}</span><span class=\"soft\">{}</span></p>\n",
                     result.status == "finished" ? "" : " stopped", html_text(result.status),
                     html_text(data.made));
  for (const std::string& line : {data.model, data.machine}) {
    if (!line.empty()) out += fmt::format("<p class=\"soft\">{}</p>\n", html_text(line));
  }
  if (!data.command.empty())
    out += fmt::format("<pre aria-label=\"command\">{}</pre>\n", html_text(data.command));
  return out + "</header>\n";
}

std::string curves_section(const ReportData& data) {
  const std::vector<ReportFigure> figures = report_curves(data);
  if (figures.empty()) return "";
  std::string out =
      "<section aria-labelledby=\"h-curves\">\n<h2 id=\"h-curves\">Training</h2>\n<div class=\"grid\">\n";
  for (const ReportFigure& f : figures) out += to_html(Figure{"chart-" + f.id, f.title, "", "", f.wide});
  out += "</div>\n";
  if (!data.steps.empty())
    out += fmt::format("<details><summary>all steps as a table</summary>{}</details>\n", curve_table(data));
  if (!data.evals.empty())
    out +=
        fmt::format("<details><summary>all evaluations as a table</summary>{}</details>\n", eval_table(data));
  return out + "</section>\n";
}

std::string memory_section(const ReportData& data) {
  const std::vector<Tier> tiers = tiers_in_use(data);
  if (tiers.empty()) return "";
  std::string out =
      "<section aria-labelledby=\"h-memory\">\n<h2 id=\"h-memory\">Memory of every rank</h2>\n<div "
      "class=\"grid\">\n";
  constexpr std::array<const char*, kTiers.size()> titles{"Device memory", "Host memory", "Disk"};
  for (const Tier tier : tiers) {
    std::string note = "The plan before the first step, and the peak in use.";
    if (tier == Tier::device && data.memory_limit > 0) {
      note += fmt::format(" A rank may use {}.", format_bytes(data.memory_limit));
    }
    out += to_html(Figure{fmt::format("memory-{}", name_of(tier)), titles[size_t(tier)], note,
                          memory_table(data, tier), true});
  }
  return out + "</div>\n</section>\n";
}

std::string timeline_section(const ReportData& data) {
  const Timeline& timeline = data.timeline;
  if (timeline.spans.empty()) return "";
  const double exposed = timeline.exposed_ms();
  const double share = timeline.duration_ms > 0 ? 100 * exposed / timeline.duration_ms : 0;
  const std::string which =
      timeline.step > 0 ? fmt::format("Step {}", timeline.step) : std::string("One step");
  const std::string note = fmt::format(
      "{} on rank {}: {:.2f} ms, of which computation waited {:.2f} ms ({:.1f} %) for communication.", which,
      timeline.rank, timeline.duration_ms, exposed, share);
  return "<section aria-labelledby=\"h-timeline\">\n<h2 id=\"h-timeline\">One step in time</h2>\n<div "
         "class=\"grid\">\n" +
         to_html(Figure{"timeline", "Lanes", note, timeline_table(timeline), true}) + "</div>\n</section>\n";
}

std::string table_section(std::string_view id, std::string_view title, const std::string& table) {
  return fmt::format(
      "<section aria-labelledby=\"h-{0}\">\n<h2 id=\"h-{0}\">{1}</h2>\n<div "
      "class=\"card\">{2}</div>\n</section>\n",
      id, title, table);
}

std::string outro(const ReportData& data) {
  std::string out = "<footer>";
  if (!data.result.out_folder.empty())
    out += fmt::format("<p>Written to <code>{}</code></p>", html_text(data.result.out_folder));
  if (!data.result.weights_hash.empty()) {
    out += fmt::format("<p>Hash of the weights: <code>{}</code></p>", html_text(data.result.weights_hash));
  }
  return out + "<p>Made by Zeno.</p></footer>\n";
}

}  // namespace

std::string report_html(const ReportData& data) {
  std::string out = intro(data) + summary_tiles(data);
  if (!data.advice.empty())
    out += table_section("advice", "Advice", fmt::format("<p>{}</p>", html_text(data.advice)));
  out += "<noscript><p>The charts need JavaScript; all numbers are in the tables.</p></noscript>\n";
  out += curves_section(data) + memory_section(data) + timeline_section(data);
  if (!data.events.empty()) out += table_section("events", "Events", event_table(data));
  if (!data.settings.empty()) {
    out += fmt::format(
        "<section aria-labelledby=\"h-settings\">\n<h2 id=\"h-settings\">Settings</h2>\n<details "
        "class=\"card\"><summary>{} "
        "settings</summary>{}</details>\n</section>\n",
        data.settings.size(), setting_table(data));
  }
  out += outro(data);
  return page::to_html({data.title, std::move(out), report_json(data), kReportScript});
}

void write_report(const Path& path, const ReportData& data) { replace_file(path, report_html(data)); }

}  // namespace zeno::report
