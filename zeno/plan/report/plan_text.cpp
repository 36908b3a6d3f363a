#include "zeno/plan/report/plan_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "zeno/base/quantity.h"
#include "zeno/device/ledger.h"
#include "zeno/plan/recompute.h"

namespace zeno::plan {
namespace {

constexpr int kLeastBar = 12;

std::string bytes_or_blank(size_t bytes) { return bytes > 0 ? format_bytes(bytes) : ""; }

// A bar far beyond the limit would flatten the others and is cut; a limit far above all is not shown.
double full_bar(const std::vector<PlanRow>& rows, size_t limit) {
  size_t most = 1;
  for (const PlanRow& row : rows) most = std::max(most, row.bytes.total(Tier::device));
  const bool near = limit > 0 && double(limit) <= 3 * double(most);
  return near ? std::clamp(double(most), 1.05 * double(limit), 1.25 * double(limit)) : double(most);
}

std::string explanation(const PlanReport& report, bool all) {
  const bool limited = report.limits.known();
  if (all) return limited ? "every setting, best first" : "every setting";
  if (!limited)
    return "one line for each stage and location of states; give --device-mem 80GB to see what fits, --all "
           "for every setting";
  return "one line for each stage and location of states, with the least recompute and the largest "
         "micro-batch that fit; best first; --all: every setting";
}

std::string table(const PlanReport& report, bool all, TextStyle style) {
  const std::vector<PlanRow> rows = all ? report.rows : best_rows(report.rows);
  const bool timed = std::ranges::any_of(rows, [](const PlanRow& row) { return bool(row.step_seconds); });
  const bool limited = report.limits.known();
  const auto line = [&](auto stage, auto homes, auto recompute, auto batch, std::string_view device,
                        std::string_view host, std::string_view disk, std::string_view fits) {
    return fmt::format("{:>5} {:<19} {:<9} {:>5} {:>11} {:>11} {:>11} {:<5}", stage, homes, recompute, batch,
                       device, host, disk, limited ? fits : "");
  };
  std::string text = fmt::format("{}\n", explanation(report, all));
  const std::string head = line("stage", "offload", "recompute", "batch", "device", "host", "disk", "fits") +
                           (timed ? fmt::format("{:>10} {:>10} ", "step", "tokens/s") : "");
  text += head + " device memory by purpose\n";
  const int columns = std::max(kLeastBar, style.width - int(head.size()) - 1);
  const double full = full_bar(rows, report.limits.device);
  for (const PlanRow& row : rows) {
    const Setting& s = row.setting;
    text += line(s.stage, name_of(s.homes), name_of(s.recompute), s.micro_batch,
                 format_bytes(row.bytes.total(Tier::device)), bytes_or_blank(row.bytes.total(Tier::host)),
                 bytes_or_blank(row.bytes.total(Tier::disk)), row.fits() ? "yes" : "no");
    if (timed)
      text += fmt::format("{:>8.3f} s {:>10.0f} ", row.step_seconds.value_or(0),
                          row.tokens_per_second.value_or(0));
    text += fmt::format(
        " {}\n", stacked_bar(row.bytes, Tier::device, full, report.limits.device, columns, style.colour));
  }
  return text + bar_legend(rows, Tier::device, style);
}

// The ledger of one setting, line by line.
std::string ledger(const PlanRow& row, TextStyle style) {
  std::string text;
  constexpr int kLeft = 36;
  const int columns = std::max(kLeastBar, style.width - kLeft);
  for (Tier tier : kTiers) {
    const size_t total = row.bytes.total(tier);
    if (total == 0) continue;
    size_t most = 1;
    for (int p = 0; p < kPurposes; ++p) most = std::max(most, row.bytes.at(tier, Purpose(p)));
    for (int p = 0; p < kPurposes; ++p) {
      const size_t bytes = row.bytes.at(tier, Purpose(p));
      if (bytes == 0) continue;
      text +=
          fmt::format("  {:<6} {:<12} {:>12} {}\n", name_of(tier), name_of(Purpose(p)), format_bytes(bytes),
                      plain_bar(Purpose(p), bytes, double(most), columns, style.colour));
    }
    text += fmt::format("  {:<6} {:<12} {:>12}\n", name_of(tier), "total", format_bytes(total));
  }
  text += fmt::format("model states (parameters, gradients, masters, moments): {} ({:.2f} GB)\n",
                      format_bytes(row.bytes.model_states), double(row.bytes.model_states) / 1e9);
  if (row.fits()) return text;
  for (const auto& [bytes, what] :
       {std::pair{row.missing_device, "device"}, std::pair{row.missing_host, "host"}})
    if (bytes > 0) text += fmt::format("does not fit: {} of {} memory too much\n", format_bytes(bytes), what);
  return text;
}

// One line for each stage of the pipeline.
std::string stages(const PlanReport& report) {
  std::string text = fmt::format("{:>5} {:<24} {:>14} {:>11} {:>11} {:>11}\n", "stage", "layers",
                                 "parameters", "device", "host", "disk");
  for (const StageBytes& stage : report.stages) {
    text += fmt::format("{:>5} {:<24} {:>14} {:>11} {:>11} {:>11}\n", stage.stage.index, stage.layers,
                        count_in_words(stage.params), format_bytes(stage.bytes.total(Tier::device)),
                        bytes_or_blank(stage.bytes.total(Tier::host)),
                        bytes_or_blank(stage.bytes.total(Tier::disk)));
  }
  std::vector<std::string> most;
  for (Tier tier : kTiers) {
    if (report.chosen.bytes.total(tier) > 0)
      most.push_back(fmt::format("stage {} of {}", report.neediest[size_t(tier)], name_of(tier)));
  }
  return text + fmt::format("needs most: {}; their bytes:\n", fmt::join(most, ", "));
}

std::string comparison(const PlanReport& report) {
  std::string text = fmt::format(
      "\n"
      "DeepSpeed's estimator counts model states only (fp32 gradients, 18 bytes per parameter); compared "
      "with this plan, states of all tiers\n"
      "{:>5} {:<19} {:>14} {:>14} {:>14} {:>14} {:>14} {:>14}\n",
      "stage", "offload", "DeepSpeed GPU", "DeepSpeed host", "states", "not counted", "Zeno device",
      "Zeno host");
  for (const Comparison& c : report.deepspeed) {
    const Setting& s = c.ours.setting;
    const size_t host = c.ours.bytes.total(Tier::host) * size_t(report.node_ranks);
    text += fmt::format("{:>5} {:<19} {:>14} {:>14} {:>14} {:>14} {:>14} {:>14}\n", s.stage, name_of(s.homes),
                        format_bytes(size_t(c.theirs.device)), format_bytes(size_t(c.theirs.host)),
                        format_bytes(c.ours.bytes.model_states), format_bytes(c.left_out()),
                        format_bytes(c.ours.bytes.total(Tier::device)), format_bytes(host));
  }
  std::vector<std::string_view> names;
  for (const Purpose purpose : left_out_by_deepspeed(2)) names.push_back(name_of(purpose));
  return text + fmt::format(
                    "not counted by that estimator: {} (at stage 3 it counts one gathered layer); host "
                    "columns are for a whole host of {} ranks\n",
                    fmt::join(names, ", "), report.node_ranks);
}

}  // namespace

std::string plan_text(const PlanReport& report, bool all, TextStyle style) {
  std::string text = fmt::format("{}: bytes per rank\n", report.title);
  for (const std::string& note : report.notes) text += fmt::format("  {}\n", note);
  if (!report.stages.empty()) text += stages(report);
  text += report.rows.empty() ? ledger(report.chosen, style) : table(report, all, style);
  if (!report.deepspeed.empty()) text += comparison(report);
  return text;
}

}  // namespace zeno::plan
