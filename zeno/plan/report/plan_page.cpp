#include "zeno/plan/report/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "zeno/base/quantity.h"
#include "zeno/device/ledger.h"
#include "zeno/page/html_page.h"
#include "zeno/page/html_table.h"
#include "zeno/page/html_text.h"
#include "zeno/plan/recompute.h"
#include "zeno/plan/report/plan_assets.h"

namespace zeno::plan {
namespace {

using Json = nlohmann::ordered_json;
using page::Figure, page::html_text, page::Table, page::tile;

std::vector<PlanRow> rows_of(const PlanReport& report) {
  return report.rows.empty() ? std::vector{report.chosen} : report.rows;
}

std::string amount(size_t bytes) { return bytes > 0 ? format_bytes(bytes) : ""; }

std::string intro(const PlanReport& report) {
  std::string out = fmt::format("<header>\n<h1>Memory plan: {}</h1>\n", html_text(report.title));
  for (const std::string& note : report.notes)
    out += fmt::format("<p class=\"soft\">{}</p>\n", html_text(note));
  if (!report.command.empty())
    out += fmt::format("<pre aria-label=\"command\">{}</pre>\n", html_text(report.command));
  return out + "</header>\n";
}

std::string tiles(const PlanReport& report) {
  const std::vector<PlanRow> rows = rows_of(report);
  const PlanRow& best = rows.front();
  std::string out = "<dl class=\"tiles\">\n";
  out += tile("Parameters", count_in_words(report.params));
  out += tile("Ranks", fmt::format("{}", report.ranks), fmt::format("{} per host", report.node_ranks));
  if (report.limits.device > 0) out += tile("Device limit", format_bytes(report.limits.device), "per rank");
  if (report.limits.host > 0) out += tile("Host limit", format_bytes(report.limits.host), "per rank");
  if (report.limits.known()) {
    const auto fitting = std::ranges::count_if(rows, &PlanRow::fits);
    out += tile("Settings that fit", fmt::format("{} of {}", fitting, rows.size()));
  }
  const std::string device = format_bytes(best.bytes.total(Tier::device));
  if (report.rows.empty()) return out + tile("Device memory", device, "per rank") + "</dl>\n";
  out += tile(!report.limits.known() ? "First setting"
              : best.fits()          ? "Best setting"
                                     : "Nearest setting",
              device, flags_of(best.setting));
  return out + "</dl>\n";
}

std::string figures(const PlanReport& report) {
  const std::vector<PlanRow> rows = rows_of(report);
  constexpr std::array<const char*, kTiers.size()> kTitles{"Device memory", "Host memory", "Disk"};
  std::string out =
      "<section aria-labelledby=\"h-memory\">\n"
      "<h2 id=\"h-memory\">Memory per rank</h2>\n"
      "<div class=\"grid\">\n";
  for (Tier tier : kTiers) {
    if (std::ranges::all_of(rows, [&](const PlanRow& row) { return row.bytes.total(tier) == 0; })) continue;
    const std::string note = rows.size() == 1 ? ""
                             : report.limits.known()
                                 ? "Best first. One bar for each stage and location of states, with the "
                                   "least recompute and the largest micro-batch that fit."
                                 : "One bar for each stage and location of states.";
    out += to_html(Figure{fmt::format("plan-{}", name_of(tier)), kTitles[size_t(tier)], note, "", true});
  }
  return out + "</div>\n</section>\n";
}

Table row_table(const PlanReport& report) {
  const std::vector<PlanRow> rows = rows_of(report);
  const bool timed = std::ranges::any_of(rows, [](const PlanRow& row) { return bool(row.step_seconds); });
  std::vector<int> purposes;
  for (int p = 0; p < kPurposes; ++p) {
    const auto has = [&](const PlanRow& row) { return row.bytes.at(Tier::device, Purpose(p)) > 0; };
    if (std::ranges::any_of(rows, has)) purposes.push_back(p);
  }
  Table table{"Columns after “disk” are device memory by purpose.", {"setting"}, {}};
  if (report.limits.known()) table.head.push_back("fits");
  if (timed) table.head.insert(table.head.end(), {"step", "tokens/s"});
  table.head.insert(table.head.end(), {"model states", "device", "host", "disk"});
  for (int p : purposes) table.head.emplace_back(name_of(Purpose(p)));
  for (const PlanRow& row : rows) {
    std::vector<std::string> cells{flags_of(row.setting)};
    if (report.limits.known()) cells.push_back(row.fits() ? "yes" : "no");
    if (timed) {
      cells.push_back(fmt::format("{:.3f} s", row.step_seconds.value_or(0)));
      cells.push_back(fmt::format("{:.0f}", row.tokens_per_second.value_or(0)));
    }
    cells.push_back(format_bytes(row.bytes.model_states));
    for (Tier tier : kTiers) cells.push_back(amount(row.bytes.total(tier)));
    for (int p : purposes) cells.push_back(amount(row.bytes.at(Tier::device, Purpose(p))));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Table stage_table(const PlanReport& report) {
  Table table{"", {"stage", "layers", "parameters", "device", "host", "disk"}, {}};
  for (const StageBytes& stage : report.stages) {
    std::vector<std::string> cells{fmt::format("{}", stage.stage.index), stage.layers,
                                   count_in_words(stage.params)};
    for (Tier tier : kTiers) cells.push_back(amount(stage.bytes.total(tier)));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Table comparison_table(const PlanReport& report) {
  Table table{
      fmt::format(
          "The estimator counts model states only, with fp32 gradients. Host: a whole host of {} ranks.",
          report.node_ranks),
      {"setting", "DeepSpeed, GPU", "DeepSpeed, host", "Zeno, states", "not counted", "Zeno, device",
       "Zeno, host"},
      {}};
  for (const Comparison& c : report.deepspeed) {
    const PlanBytes& ours = c.ours.bytes;
    table.rows.push_back(
        {fmt::format("stage {}, offload {}", c.ours.setting.stage, name_of(c.ours.setting.homes)),
         format_bytes(size_t(c.theirs.device)), format_bytes(size_t(c.theirs.host)),
         format_bytes(ours.model_states), format_bytes(c.left_out()), format_bytes(ours.total(Tier::device)),
         format_bytes(ours.total(Tier::host) * size_t(report.node_ranks))});
  }
  return table;
}

std::string section(std::string_view id, std::string_view title, const std::string& content) {
  return fmt::format("<section aria-labelledby=\"h-{0}\">\n<h2 id=\"h-{0}\">{1}</h2>\n{2}</section>\n", id,
                     title, content);
}

std::string card(const Table& table) { return fmt::format("<div class=\"card\">{}</div>\n", to_html(table)); }

// Many rows are folded.
std::string rows_section(const PlanReport& report) {
  const Table table = row_table(report);
  if (report.rows.empty()) return section("rows", "Numbers", card(table));
  return section("rows", "All settings",
                 fmt::format("<details class=\"card\"><summary>{} settings</summary>{}</details>\n",
                             table.rows.size(), to_html(table)));
}

// What the script draws: every row, and which of them are shown at first.
std::string data_json(const PlanReport& report) {
  const std::vector<PlanRow> rows = rows_of(report), best = best_rows(rows);
  Json json;
  json["limited"] = report.limits.known();
  for (int p = 0; p < kPurposes; ++p) json["purposes"].push_back(name_of(Purpose(p)));
  for (Tier tier : kTiers) {
    const size_t limit = tier == Tier::device ? report.limits.device
                         : tier == Tier::host ? report.limits.host
                                              : 0;
    json["tiers"].push_back({{"name", name_of(tier)}, {"limit", limit}});
  }
  for (const PlanRow& row : rows) {
    const Setting& s = row.setting;
    const bool shown = std::ranges::any_of(best, [&](const PlanRow& other) {
      return flags_of(other.setting) == flags_of(s) && other.setting.homes == s.homes;
    });
    const std::string detail = fmt::format(
        "batch {}{}", s.micro_batch,
        s.recompute == nn::Recompute::none ? "" : fmt::format(", recompute {}", name_of(s.recompute)));
    json["rows"].push_back({{"label", fmt::format("stage {}{}", s.stage,
                                                  s.homes == Homes::as_given || s.homes == Homes::device
                                                      ? ""
                                                      : fmt::format(", {}", name_of(s.homes)))},
                            {"detail", detail},
                            {"fits", row.fits()},
                            {"best", shown},
                            {"bytes", row.bytes.by_purpose}});
  }
  return json.dump();
}

}  // namespace

std::string plan_page(const PlanReport& report) {
  std::string out = intro(report) + tiles(report);
  out += "<noscript><p>The charts need JavaScript; all numbers are in the tables.</p></noscript>\n";
  out += figures(report);
  if (!report.stages.empty()) out += section("stages", "Stages of the pipeline", card(stage_table(report)));
  if (!report.deepspeed.empty())
    out += section("deepspeed", "Compared with DeepSpeed’s estimator", card(comparison_table(report)));
  out += rows_section(report);
  out += "<footer><p>Made by Zeno.</p></footer>\n";
  return page::to_html({"Memory plan: " + report.title, std::move(out), data_json(report), kPlanScript});
}

void write_page(const Path& file, const PlanReport& report) { replace_file(file, plan_page(report)); }

}  // namespace zeno::plan
