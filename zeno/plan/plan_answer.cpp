#include "zeno/plan/plan_answer.h"

#include <fmt/format.h>

#include <cmath>

#include "zeno/base/error.h"
#include "zeno/base/host.h"
#include "zeno/base/quantity.h"
#include "zeno/base/workers.h"
#include "zeno/device/ledger.h"
#include "zeno/model/layers.h"
#include "zeno/plan/advice_reasons.h"
#include "zeno/plan/place_states.h"
#include "zeno/plan/setting_choices.h"
#include "zeno/plan/timeline.h"

namespace zeno::plan {
namespace {

std::vector<std::string> notes_of(const PlanSubject& subject, const PlanModel& model,
                                  const zero::EngineOptions& options, const PlanReport& report) {
  std::vector<std::string> notes;
  const zero::Policy& policy = options.policy;
  notes.push_back(fmt::format("{}, {}, sequences of {} tokens, {} micro-batch{} per step",
                              options.device.kind == Device::Kind::cuda ? "GPU" : "CPU",
                              name_of(policy.compute),
                              options.shape.seq * options.mesh.size(comm::Axis::context),
                              policy.micro_batches, policy.micro_batches == 1 ? "" : "es"));
  if (options.mesh.size({comm::Axis::pipe, comm::Axis::context}) > 1)
    notes.push_back(
        fmt::format("mesh: {}{}", describe(options.mesh),
                    options.mesh.size(comm::Axis::pipe) > 1
                        ? "; bytes of each tier are those of the pipeline stage that needs most of it"
                        : ""));
  if (subject.params)
    notes.push_back(
        fmt::format("model states by formula for {} parameters; everything else from a llama with {} blocks, "
                    "hidden size {}, {} tokens ({} parameters)",
                    count_in_words(*subject.params), subject.model.layers, subject.model.hidden,
                    subject.model.vocab, count_in_words(count_of(model.layers))));
  if (report.limits.known()) {
    const auto size = [](size_t bytes) { return bytes > 0 ? format_bytes(bytes) : "any amount"; };
    notes.push_back(fmt::format("a rank may use {} of device and {} of host memory ({} ranks per host)",
                                size(report.limits.device), size(report.limits.host), report.node_ranks));
  }
  if (policy.compute == DType::f32) return notes;
  if (!report.rows.empty()) {
    notes.push_back(fmt::format(
        "gradients are kept in {}{}", name_of(policy.grad),
        policy.grad == DType::f32 ? ""
                                  : "; runs accumulate in fp32 by default, which adds 2 bytes per gradient"));
    return notes;
  }
  const double gradients = double(report.chosen.bytes.at(Tier::device, Purpose::gradients));
  const double other = double(size_of(policy.grad == DType::f32 ? policy.compute : DType::f32));
  const size_t change = size_t(std::abs(gradients * (other / double(size_of(policy.grad)) - 1)));
  notes.push_back(
      policy.grad == DType::f32
          ? fmt::format("fp32 accumulation of gradients takes {} of this (data_types.grad_accum_dtype: "
                        "\"{}\" would save it)",
                        format_bytes(change), name_of(policy.compute))
          : fmt::format("gradients are kept in {}; runs accumulate in fp32 by default, which adds {}",
                        name_of(policy.grad), format_bytes(change)));
  return notes;
}

// The setting of flags and config, as the run would complete it.
PlanRow chosen_row(const PlanQuestion& q, const PlanModel& model, zero::EngineOptions& options) {
  const config::TrainConfig& config = q.parsed.config;
  MemoryLimits limits = q.limits;
  if (config.recompute.mode == config::RecomputeMode::automatic ||
      config.zero.offload_optimizer.device == config::OffloadDevice::automatic) {
    require(limits.device > 0, ErrorKind::usage,
            "[plan] auto: got no GPU to fill; give --device-mem 80GB --host-mem 512GB, plan with --recompute "
            "none, selective or full and --offload-optimizer none, cpu or nvme, or run the plan on the "
            "training machine");
    if (limits.host == 0) limits.host = SIZE_MAX;
    place_states(config, q.layers, options, limits, true);
  }
  PlanRow row;
  const int stage = int(config.zero.stage);
  row.setting = {stage, homes_of(options.policy.offload, stage), options.policy.recompute,
                 options.shape.batch, options.policy.overlap};
  row.bytes = plan_bytes(model, options);
  set_missing(row, q.device, limits);
  return row;
}

void time_rows(const PlanQuestion& q, const zero::EngineOptions& given, std::vector<PlanRow>& rows) {
  Workers workers(available_cores());
  workers.for_each(int64_t(rows.size()), [&](int64_t i, int) {
    PlanRow& row = rows[size_t(i)];
    const StepTime time = predict_step(q.layers, with(given, row.setting), *q.machine);
    row.step_seconds = time.step_s;
    row.tokens_per_second = time.tokens_per_s;
  });
}

// Is one setting meant? Stages make no difference to one rank, so there the micro-batch says so.
bool fixed(const PlanQuestion& q) {
  return q.parsed.given("zero_optimization.stage") || (q.mesh.ranks == 1 && !q.batch_open);
}

}  // namespace

PlanReport answer(const PlanQuestion& q, const AnswerOptions& how) {
  const config::TrainConfig& config = q.parsed.config;
  const PlanModel model{q.layers, q.subject.params};
  PlanReport report;
  report.ranks = q.mesh.ranks;
  report.node_ranks = q.mesh.ranks_per_host;
  report.limits = q.limits;
  const zero::EngineOptions given = on_mesh(q.options, q.mesh);
  zero::EngineOptions options = given;
  report.chosen = chosen_row(q, model, options);
  report.params = q.subject.params.value_or(count_of(q.layers));
  report.title = fmt::format("{}{} of {} parameters on {} rank{}", model::name_of(q.subject.model.arch),
                             config.lora.rank > 0 ? " with adapters" : "", count_in_words(report.params),
                             q.mesh.ranks, q.mesh.ranks == 1 ? "" : "s");
  report.command = how.command;
  if (!fixed(q) || how.all) {
    const PlanChoices choices = open_choices(q.parsed, report.chosen.setting, q.batch_open, q.device,
                                             options.mesh, report.limits, true);
    report.rows = plan_rows(model, given, choices);
    if (q.machine) time_rows(q, given, report.rows);
  } else {
    report.title += fmt::format(", stage {}, micro-batch {}", config.zero.stage, q.options.shape.batch);
  }
  if (how.deepspeed)
    report.deepspeed = compare_deepspeed(model, given, report.chosen.setting, report.node_ranks);
  if (q.mesh.pipe > 1 && report.rows.empty()) {
    report.stages = plan_stages(model, options);
    report.neediest = neediest_stages(q.device.kind, report.stages);
  }
  report.notes = notes_of(q.subject, model, given, report);
  const std::string rails = q.machine ? describe_rails(*q.machine, q.mesh.ranks) : "";
  if (!rails.empty()) report.notes.push_back(fmt::format("between nodes: {}", rails));
  if (q.machine && report.rows.empty()) {
    const StepTime time = predict_step(q.layers, options, *q.machine);
    report.chosen.step_seconds = time.step_s;
    report.chosen.tokens_per_second = time.tokens_per_s;
    report.time = time;
    for (std::string& line : describe_time(time, q.machine->name)) report.notes.push_back(std::move(line));
  }
  return report;
}

}  // namespace zeno::plan
