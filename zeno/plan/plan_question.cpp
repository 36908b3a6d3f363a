#include "cli/plan_question.h"

#include <algorithm>

#include "zeno/base/cache_folder.h"
#include "zeno/base/error.h"
#include "zeno/base/quantity.h"
#include "zeno/config/config_resolve.h"
#include "zeno/config/engine_options.h"
#include "zeno/config/tuning.h"
#include "zeno/device/device.h"
#include "zeno/model/layers.h"
#include "zeno/plan/machine/measure.h"

namespace zeno::cli {
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
Device device_of(const config::RunConfig& run, bool described, const plan::Machine* machine) {
  if (machine != nullptr && run.device == config::RunDevice::automatic) return {machine->kind, 0};
  const bool gpu =
      run.device == config::RunDevice::cuda || (described && run.device == config::RunDevice::automatic);
  return gpu ? Device{Device::Kind::cuda, 0} : config::device_of(run, 0);
}

// What is said, or else what this machine has where it is the one that is planned for; 0: not known.
plan::MemoryLimits limits_of(const config::RunConfig& run, Device device, bool described, int node_ranks,
                             const plan::Machine* machine) {
  plan::MemoryLimits limits;
  if (machine != nullptr)
    limits = {size_t(machine->memory), size_t(machine->host_memory) / size_t(node_ranks)};
  else if (!described && device_count(device.kind) > 0)
    limits = plan::memory_limits(run, device, node_ranks);
  if (!run.device_mem.empty()) limits.device = size_t(parse_bytes(run.device_mem).value());
  if (!run.host_mem.empty()) limits.host = size_t(parse_bytes(run.host_mem).value()) / size_t(node_ranks);
  if (device.kind == Device::Kind::cpu && limits.device == 0) limits.device = limits.host;
  return limits;
}

// By name or file; else, for a run of this machine, as it was measured.
std::optional<plan::Machine> machine_of(const PlanFlags& flags, const PlanQuestion& q) {
  if (!flags.machine.empty()) return plan::find_machine(flags.machine);
  if (q.subject.described) return {};
  const std::string& cache = q.parsed.config.run.cache;
  return plan::measured_machine(cache.empty() ? cache_folder() : Path(cache),
                                device_of(q.parsed.config.run, false, nullptr).kind);
}

int ranks_of_node(const PlanFlags& flags, const PlanQuestion& q) {
  const int gpus = q.machine ? q.machine->node_ranks : device_count(Device::Kind::cuda);
  const int most = q.device.kind == Device::Kind::cpu ? q.world : (gpus > 0 ? gpus : 8);
  return std::min(q.world, flags.node_ranks > 0 ? flags.node_ranks : most);
}

}  // namespace

PlanQuestion resolve(const PlanFlags& flags) {
  PlanQuestion q;
  q.parsed = flags.run.parse();
  config::TrainConfig& config = q.parsed.config;
  require(!q.parsed.given("zeno.ranks") || config.run.ranks >= 1, ErrorKind::usage,
          "[plan] --ranks: got {}, expected at least 1", config.run.ranks);
  q.subject = plan_subject(q.parsed, flags.arch, flags.params);
  q.machine = machine_of(flags, q);
  if (q.machine && flags.between_rate > 0) q.machine->between.rate = flags.between_rate * 1e9;
  const plan::Machine* machine = flags.machine.empty() ? nullptr : &*q.machine;
  const bool all_ranks = machine != nullptr && !q.parsed.given("zeno.ranks");
  q.world = all_ranks ? machine->ranks() : std::max<int>(1, int(config.run.ranks));
  q.device = device_of(config.run, q.subject.described, machine);
  if (q.subject.params) count_as_papers(q.parsed);
  config::resolve_device(q.parsed, q.device.kind);
  q.batch_open = config.batch.micro_batch == 0 && config.batch.train_batch == 0;
  if (q.batch_open) config.batch.micro_batch = 1;
  config::resolve_batch(q.parsed, q.world);
  config::resolve_model(q.parsed, q.subject.model.hidden, q.subject.model.layers);
  const int64_t seq = config::sequence_length(config.run, q.subject.model.max_positions);
  q.layers = model::build_layers(q.subject.model, seq, config::tuning_of(config));
  q.options = config::engine_options(config, seq, q.device);
  q.node_ranks = ranks_of_node(flags, q);
  q.limits = limits_of(config.run, q.device, q.subject.described, q.node_ranks, machine);
  return q;
}

}  // namespace zeno::cli
