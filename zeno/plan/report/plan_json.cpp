#include "zeno/plan/report/plan_json.h"

#include <nlohmann/json.hpp>

#include "zeno/plan/recompute.h"

namespace zeno::plan {
namespace {

using Json = nlohmann::ordered_json;

Json bytes_json(const PlanBytes& bytes) {
  Json tiers;
  for (Tier tier : kTiers) {
    Json& purposes = tiers[std::string(name_of(tier))];
    for (int p = 0; p < kPurposes; ++p)
      purposes[std::string(name_of(Purpose(p)))] = bytes.at(tier, Purpose(p));
    purposes["total"] = bytes.total(tier);
  }
  return tiers;
}

void add_row(Json& json, const PlanRow& row, bool limited) {
  const Setting& s = row.setting;
  json["stage"] = s.stage;
  json["offload"] = name_of(s.homes);
  json["recompute"] = name_of(s.recompute);
  json["micro_batch"] = s.micro_batch;
  json["flags"] = flags_of(s);
  if (limited) {
    json["fits"] = row.fits();
    json["missing_device_bytes"] = row.missing_device;
    json["missing_host_bytes"] = row.missing_host;
  }
  if (row.step_seconds) json["step_seconds"] = *row.step_seconds;
  if (row.tokens_per_second) json["tokens_per_s"] = *row.tokens_per_second;
  json["model_states_bytes"] = row.bytes.model_states;
  json["bytes"] = bytes_json(row.bytes);
}

Json comparison_json(const Comparison& comparison) {
  const Setting& s = comparison.ours.setting;
  Json json{{"stage", s.stage},
            {"offload", name_of(s.homes)},
            {"deepspeed_device_bytes", comparison.theirs.device},
            {"deepspeed_host_bytes", comparison.theirs.host},
            {"model_states_bytes", comparison.ours.bytes.model_states},
            {"bytes", bytes_json(comparison.ours.bytes)}};
  Json& left_out = json["left_out_bytes"];
  for (const Purpose purpose : left_out_by_deepspeed(s.stage))
    left_out[std::string(name_of(purpose))] = comparison.ours.bytes.at(Tier::device, purpose);
  left_out["total"] = comparison.left_out();
  return json;
}

Json time_json(const StepTime& time) {
  Json json{{"step_seconds", time.step_s},
            {"compute_seconds", time.compute_s},
            {"tflops_per_rank", time.flops_per_s() / 1e12},
            {"bottleneck", name_of(time.bottleneck)}};
  const bool staged = time.stage.count > 1;
  if (staged) json["slowest_stage"] = time.stage.index;
  for (int w = 0; w < kWaits - int(!staged); ++w)
    json["exposed_seconds"][std::string(name_of(Wait(w)))] = time.exposed[size_t(w)];
  Json& units = json["exposed_by_unit"] = Json::array();
  for (const StepTime::Exposed& exposed : time.exposed_by_unit)
    units.push_back({{"unit", exposed.unit}, {"op", exposed.op}, {"seconds", exposed.seconds}});
  return json;
}

Json stage_json(const StageBytes& stage) {
  return {{"layers", stage.layers},
          {"params", stage.params},
          {"model_states_bytes", stage.bytes.model_states},
          {"bytes", bytes_json(stage.bytes)}};
}

}  // namespace

std::string plan_json(const PlanReport& report) {
  Json json{{"title", report.title},
            {"notes", report.notes},
            {"params", report.params},
            {"ranks", report.ranks},
            {"ranks_per_host", report.node_ranks}};
  if (report.limits.device > 0) json["limits"]["device"] = report.limits.device;
  if (report.limits.host > 0) json["limits"]["host"] = report.limits.host;
  const bool limited = report.limits.known();
  add_row(json, report.chosen, limited);
  if (report.time) json["time"] = time_json(*report.time);
  for (const StageBytes& stage : report.stages) json["stages"].push_back(stage_json(stage));
  for (Tier tier : kTiers) {
    if (!report.stages.empty() && report.chosen.bytes.total(tier) > 0)
      json["neediest_stage"][std::string(name_of(tier))] = report.neediest[size_t(tier)];
  }
  for (const PlanRow& row : report.rows) add_row(json["rows"].emplace_back(), row, limited);
  for (const Comparison& comparison : report.deepspeed)
    json["deepspeed"].push_back(comparison_json(comparison));
  return json.dump(2);
}

}  // namespace zeno::plan
