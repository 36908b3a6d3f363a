#include "cli/plan_sweep.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "zeno/base/error.h"
#include "zeno/device/ledger.h"
#include "zeno/plan/sweep.h"

namespace zeno::cli {
namespace {

constexpr int kMost = 16'384;

std::vector<int> counts_of(const std::string& text, int node_ranks) {
  std::vector<int> counts;
  if (text == "all") {
    for (int ranks = node_ranks; ranks <= kMost; ranks *= 2) counts.push_back(ranks);
    return counts;
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    int ranks = 0;
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, ranks);
    require(error == std::errc() && rest == text.data() + end && ranks >= 1 && ranks <= 4 * kMost,
            ErrorKind::usage,
            "[plan] --sweep: got '{}', expected all, or numbers of ranks such as 64,1024,16384", text);
    counts.push_back(ranks);
    begin = end + 1;
  }
  return counts;
}

nlohmann::ordered_json as_json(const plan::SweepPoint& p) {
  nlohmann::ordered_json json;
  json["ranks"] = p.ranks;
  json["groups"] = plan::flags_of(p.row.setting.groups);
  json["fits"] = p.row.fits();
  json["device_bytes"] = p.row.bytes.total(Tier::device);
  json["step_seconds"] = p.time.step_s;
  json["tokens_per_s"] = p.time.tokens_per_s;
  json["tflops_per_rank"] = p.time.flops_per_s() / 1e12;
  json["exposed"] = p.time.exposed_s() / p.time.step_s;
  json["hours_between_failures"] = p.failures.between / 3600;
  json["checkpoint_interval_s"] = p.interval;
  json["goodput"] = p.good;
  json["good_tokens_per_s"] = p.good * p.time.tokens_per_s;
  return json;
}

void print_row(const plan::SweepPoint& p) {
  const std::string groups = plan::flags_of(p.row.setting.groups);
  fmt::print(
      "{:>6} {:>11}{:<4} {:>8.3f} {:>10.0f} {:>8.0f} {:>8.1f} {:>9.1f} {:>9.1f} {:>8.3f} {:>13.4g}{}\n",
      p.ranks, format_bytes(p.row.bytes.total(Tier::device)), p.row.fits() ? "" : " (!)", p.time.step_s,
      p.time.tokens_per_s / p.ranks, p.time.flops_per_s() / 1e12, 100 * p.time.exposed_s() / p.time.step_s,
      p.failures.between / 3600, p.interval, p.good, p.good * p.time.tokens_per_s,
      groups.empty() ? "" : fmt::format("  {}", groups));
}

}  // namespace

void show_sweep(const plan::PlanQuestion& q, const PlanFlags& flags) {
  const plan::SweepQuestion sweep = plan::sweep_question(q, flags.failure_hours, flags.restart_s);
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  if (!flags.json)
    fmt::print(
        "{} on {}, one failure per {:.0f} device-hours, {:.0f} s to restart besides loading\n"
        "{:>6} {:>15} {:>8} {:>10} {:>8} {:>8} {:>9} {:>9} {:>8} {:>13}  groups\n",
        plan::flags_of(sweep.setting), q.machine->name, flags.failure_hours, flags.restart_s, "ranks",
        "device", "step s", "tok/s/rank", "TFLOP/s", "exposed%", "MTBF h", "save s", "goodput", "good tok/s");
  for (const int ranks : counts_of(flags.sweep, q.machine->node_ranks)) {
    const plan::SweepPoint point = plan::sweep_point(sweep, ranks);
    if (flags.json)
      all.push_back(as_json(point));
    else
      print_row(point);
  }
  if (flags.json) fmt::print("{}\n", all.dump(2));
}

}  // namespace zeno::cli
