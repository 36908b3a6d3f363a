#include "zeno/plan/plan_question.h"

#include <algorithm>
#include <utility>

#include "zeno/base/cache_folder.h"
#include "zeno/base/error.h"
#include "zeno/base/quantity.h"
#include "zeno/config/config_resolve.h"
#include "zeno/config/engine_options.h"
#include "zeno/config/tuning.h"
#include "zeno/device/device.h"
#include "zeno/model/layers.h"
#include "zeno/plan/machine/measure.h"
#include "zeno/plan/memory_limits.h"
#include "zeno/plan/setting_choices.h"

namespace zeno::plan {
namespace {

// A bare number is counted as the papers do, unless something else is asked for: half-precision parameters
// and gradients, fp32 masters and moments.
void count_as_papers(config::ParsedConfig& parsed) {
  config::PrecisionConfig& precision = parsed.config.precision;
  if (!parsed.given("zeno.dtype") && !precision.fp16_enabled && !precision.bf16_enabled) {
    precision.compute = DType::bf16;
    parsed.derive("zeno.dtype", "as the papers count");
  }
  if (!parsed.given("data_types.grad_accum_dtype")) precision.grad_accum = precision.compute;
  if (!parsed.given("communication_data_type")) precision.communication = precision.grad_accum;
}

// As the run would choose, except that a GPU can be planned for where there is none, and that a model by
// description is meant for one.
Device device_of(const config::RunConfig& run, bool described, const Machine* machine) {
  if (machine != nullptr && run.device == config::RunDevice::automatic) return {machine->kind, 0};
  const bool gpu =
      run.device == config::RunDevice::cuda || (described && run.device == config::RunDevice::automatic);
  return gpu ? Device{Device::Kind::cuda, 0} : config::device_of(run, 0);
}

// What is said, or else what this machine has where it is the one that is planned for; 0: not known.
MemoryLimits limits_of(const config::RunConfig& run, Device device, bool described, int node_ranks,
                       const Machine* machine) {
  MemoryLimits limits;
  if (machine != nullptr)
    limits = {size_t(machine->memory), size_t(machine->host_memory) / size_t(node_ranks)};
  else if (!described && device_count(device.kind) > 0)
    limits = memory_limits(run, device, node_ranks);
  if (!run.device_mem.empty()) limits.device = size_t(parse_bytes(run.device_mem).value());
  if (!run.host_mem.empty()) limits.host = size_t(parse_bytes(run.host_mem).value()) / size_t(node_ranks);
  if (device.kind == Device::Kind::cpu && limits.device == 0) limits.device = limits.host;
  return limits;
}

// By name or file; else, for a run of this machine, as it was measured.
std::optional<Machine> machine_of(const PlanPlace& place, const PlanQuestion& q) {
  if (!place.machine.empty()) return find_machine(place.machine);
  if (q.subject.described) return {};
  const std::string& cache = q.parsed.config.run.cache;
  return measured_machine(cache.empty() ? cache_folder() : Path(cache),
                          device_of(q.parsed.config.run, false, nullptr).kind);
}

int ranks_of_node(const PlanPlace& place, const PlanQuestion& q, int ranks) {
  const int gpus = q.machine ? q.machine->node_ranks : device_count(Device::Kind::cuda);
  const int most = q.device.kind == Device::Kind::cpu ? ranks : (gpus > 0 ? gpus : 8);
  return std::min(ranks, place.node_ranks > 0 ? place.node_ranks : most);
}

}  // namespace

PlanQuestion make_question(config::ParsedConfig parsed, PlanSubject subject, const PlanPlace& place) {
  PlanQuestion q;
  q.parsed = std::move(parsed);
  q.subject = std::move(subject);
  config::TrainConfig& config = q.parsed.config;
  q.machine = machine_of(place, q);
  if (q.machine && place.between_rate > 0) q.machine->between.rate = place.between_rate * 1e9;
  if (q.machine && place.rails > 0) q.machine->rails = place.rails;
  const Machine* machine = place.machine.empty() ? nullptr : &*q.machine;
  const bool all_ranks = machine != nullptr && !q.parsed.given("zeno.ranks");
  // Nothing said: as few as the mesh has.
  const int64_t fewest =
      q.parsed.given("zeno.ranks") ? 1 : config.parallel.pipe * std::max<int64_t>(1, config.parallel.context);
  const int ranks = all_ranks ? machine->ranks() : int(std::max(fewest, config.run.ranks));
  q.device = device_of(config.run, q.subject.described, machine);
  q.mesh = config::mesh_request(config, ranks, ranks_of_node(place, q, ranks));
  if (q.subject.params) count_as_papers(q.parsed);
  config::resolve_device(q.parsed, q.device.kind);
  q.batch_open = config.batch.micro_batch == 0 && config.batch.train_batch == 0;
  if (q.batch_open) config.batch.micro_batch = 1;
  config::resolve_batch(q.parsed, config::batch_ranks(config, ranks));
  config::resolve_model(q.parsed, q.subject.model.hidden, q.subject.model.layers);
  const int64_t seq = config::sequence_length(config.run, q.subject.model.max_positions);
  q.layers = model::build_layers(q.subject.model, seq, config::tuning_of(config));
  const comm::Mesh shared = comm::Mesh().with(comm::Axis::context, q.mesh.context);
  q.options = config::engine_options(config, shared, seq, q.device);
  q.limits = limits_of(config.run, q.device, q.subject.described, q.mesh.ranks_per_host, machine);
  return q;
}

AdviceQuestion advice_question(const PlanQuestion& q, Goal goal) {
  require(q.machine.has_value(), ErrorKind::usage,
          "[plan] --goal: got no machine to time it on, expected one; give --machine h100-8, or measure this "
          "one with zeno doctor --measure");
  const Setting given{int(q.parsed.config.zero.stage), Homes::as_given, q.options.policy.recompute,
                      q.options.shape.batch};
  const auto next_larger = [&q] {
    model::ModelConfig deeper = q.subject.model;
    deeper.layers *= 2;
    deeper.windows.insert(deeper.windows.end(), q.subject.model.windows.begin(),
                          q.subject.model.windows.end());
    return model::build_layers(deeper, q.options.shape.seq, config::tuning_of(q.parsed.config));
  };
  // A batch of a step that was said stays; its cut into micro-batches is free unless that was said too.
  const bool micro_given = q.parsed.given("train_micro_batch_size_per_gpu");
  const bool batch_given = q.parsed.given("train_batch_size");
  const zero::EngineOptions options = on_mesh(q.options, q.mesh);
  return {.model = {q.layers, q.subject.params},
          .options = options,
          .machine = *q.machine,
          .host = open_host(q.mesh),
          .choices = open_choices(q.parsed, given, q.batch_open || (batch_given && !micro_given), q.device,
                                  options.mesh, q.limits, true),
          .sequences = batch_given ? q.parsed.config.batch.train_batch : 0,
          .goal = goal,
          .any_order = !q.parsed.given("zeno.order"),
          .next_larger = next_larger};
}

SweepQuestion sweep_question(const PlanQuestion& q, double failure_hours, double restart_s) {
  require(q.machine.has_value(), ErrorKind::usage,
          "[plan] --sweep: got no machine, expected one; give --machine h100-8, or measure this one with "
          "zeno doctor --measure");
  const int stage = q.parsed.given("zero_optimization.stage") ? int(q.parsed.config.zero.stage) : 3;
  return {.model = {q.layers, q.subject.params},
          .options = q.options,
          .mesh = q.mesh,
          .setting = {stage, Homes::as_given, q.options.policy.recompute, q.options.shape.batch,
                      q.options.policy.overlap || !q.parsed.given("zero_optimization.overlap_comm")},
          .machine = *q.machine,
          .failure_hours = failure_hours,
          .restart_s = restart_s};
}

}  // namespace zeno::plan
