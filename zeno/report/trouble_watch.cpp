#include "zeno/report/trouble_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace zeno::report {
namespace {

int64_t largest_unit(const zero::UnitTable& units) {
  std::vector<int64_t> elements(units.unit_names.size(), 0);
  for (const zero::Group& group : units.groups) elements[size_t(group.unit)] += group.padded();
  return *std::max_element(elements.begin(), elements.end());
}

std::optional<zero::Cause> cause_of(TroubleKind kind) {
  switch (kind) {
    case TroubleKind::communication:
      return zero::Cause::communication;
    case TroubleKind::link:
      return zero::Cause::link;
    case TroubleKind::disk:
      return zero::Cause::disk;
    default:
      return std::nullopt;
  }
}

}  // namespace

TroubleWatch::TroubleWatch(const zero::Engine& engine, const config::TrainConfig& config,
                           std::vector<std::string> hosts)
    : engine_(engine),
      setting_{.config = config,
               .policy = engine.policy(),
               .device = engine.shape().device,
               .ranks = int(hosts.size()),
               .largest_unit = largest_unit(engine.units()),
               .disk_bytes = engine.ledger().booked(Tier::disk),
               .hosts = std::move(hosts)} {
  const auto& names = setting_.hosts;
  if (std::equal(names.begin() + 1, names.end(), names.begin())) setting_.hosts.clear();
}

std::vector<std::string> TroubleWatch::look(const Observation& step) {
  std::vector<std::string> lines;
  for (const Trouble& trouble : troubles_.look(step)) lines.push_back(text_of(trouble));
  return lines;
}

std::string TroubleWatch::advice(size_t memory_limit) const {
  std::vector<std::string> lines;
  for (const Trouble& trouble : troubles_.all()) lines.push_back(text_of(trouble));
  return report::advice(troubles_, lines, setting_, {engine_.ledger().peak(Tier::device), memory_limit});
}

std::string TroubleWatch::text_of(const Trouble& trouble) const {
  return describe(trouble, setting_, place_of(trouble.kind));
}

// What of this kind rank 0's computation has waited for most: "gather blocks.7".
std::string TroubleWatch::place_of(TroubleKind kind) const {
  const std::optional<zero::Cause> cause = cause_of(kind);
  if (!cause) return "";
  const std::span<const double> waited = engine_.executor().waited_for();
  const std::vector<zero::Instruction>& list = engine_.program().instructions;
  std::map<std::pair<std::string_view, int>, double> sums;  // by name of an instruction and unit
  for (size_t i = 0; i < waited.size(); ++i) {
    if (zero::cause_of(list[i]) == *cause) sums[{name_of(list[i]), list[i].unit}] += waited[i];
  }
  const auto most = std::max_element(sums.begin(), sums.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == sums.end() || most->second <= 0) return "";
  const auto [name, unit] = most->first;
  if (name == zero::Norm::name) return "the sum over ranks at the end of the step";
  return fmt::format("{} {}", name, engine_.units().unit_names[size_t(unit)]);
}

}  // namespace zeno::report
