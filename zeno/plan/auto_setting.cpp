#include "zeno/plan/auto_setting.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/config/config_resolve.h"
#include "zeno/config/engine_options.h"
#include "zeno/config/tuning.h"
#include "zeno/model/layers.h"
#include "zeno/plan/advice.h"
#include "zeno/plan/machine/measure.h"
#include "zeno/plan/memory_limits.h"
#include "zeno/plan/setting_choices.h"

namespace zeno::plan {
namespace {

constexpr const char* kStage = "zero_optimization.stage";
constexpr const char* kTrain = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kAccum = "gradient_accumulation_steps";

// What is chosen, as it travels from rank 0 to the others.
struct Chosen {
  int stage = 0;
  Homes homes = Homes::device;
  nn::Recompute recompute = nn::Recompute::none;
  int64_t micro_batch = 1, micro_batches = 1;
  zero::Order order = zero::Order::horizontal;
  bool overlap = false;
  Groups groups;
};

// The machine as it was measured; measured now, once, where it was not.
Machine machine_of_run(const config::RunConfig& run, Device::Kind kind) {
  if (std::optional<Machine> measured = measured_machine(run.cache, kind)) return *measured;
  log_info("measuring this machine once, which takes about 20 s; the result is kept in {}",
           machine_file(run.cache, kind).string());
  const Machine machine = measure_machine(
      {.kind = kind,
       .folder = Path(run.out).parent_path().empty() ? Path(".") : Path(run.out).parent_path(),
       .sizes = usual_sizes(kind)});
  make_folders(run.cache);
  save_machine(machine, machine_file(run.cache, kind));
  return machine;
}

// Ranks that share a GPU, or nodes that have not been measured: through the host at best.
Machine with_links(Machine machine, int ranks) {
  if (machine.links(ranks)) return machine;
  log_warning(
      "[auto] rates between ranks are not known, assuming those of the host link; see zeno doctor --measure");
  for (Link* link : {&machine.inside, &machine.between})
    if (link->rate == 0) *link = {machine.host_link, 20e-6};
  return machine;
}

AdviceQuestion question_of(const config::ParsedConfig& parsed, const nn::LayerList& layers, int64_t seq,
                           comm::World& world) {
  const config::TrainConfig& config = parsed.config;
  const Device device = config::device_of(config.run, world.local_rank());
  // Whatever resolves: what is open is set by every option.
  config::TrainConfig filled = config;
  const bool batch_open = config.batch.micro_batch == 0;
  if (batch_open) filled.batch.micro_batch = filled.batch.grad_accum = 1;
  if (filled.batch.grad_accum == 0) filled.batch.grad_accum = 1;
  const comm::MeshRequest request = config::mesh_request(config, world.size(), world.ranks_per_host());
  const zero::EngineOptions options = config::engine_options(filled, comm::mesh_of(request), seq, device);
  const Setting given{int(config.zero.stage), Homes::as_given, options.policy.recompute,
                      std::max<int64_t>(1, config.batch.micro_batch)};
  const MemoryLimits limits = memory_limits(config.run, device, world.local_size());
  return {.model = {layers, {}},
          .options = options,
          .machine = with_links(machine_of_run(config.run, device.kind), world.size()),
          .host = open_host(request),
          .choices = open_choices(parsed, given, batch_open, device, options.mesh, limits, false),
          .sequences = config.batch.train_batch,
          .goal = Goal::fastest,
          .any_order = !parsed.settled("zeno.order"),
          .next_larger = {}};
}

// Beside what it was held against.
std::string why(const Advice& advice) {
  const StepTime& time = advice.chosen->time;
  std::string others;
  for (const Option& option : advice.tried) {
    const Setting &s = option.row.setting, &chosen = advice.chosen->row.setting;
    if (s.stage == chosen.stage && s.homes == chosen.homes) continue;
    others = fmt::format(", {} would make {:.0f}", flags_of(option), option.time.tokens_per_s);
    break;
  }
  return fmt::format(
      "fits, and nothing simpler is faster: {:.0f} tokens/s and {:.3f} s per step according to the plan{}",
      time.tokens_per_s, time.step_s, others);
}

// None: nothing fits. The plain setting is left, and the run is refused with the nearest setting that would.
std::optional<Chosen> decide(const config::ParsedConfig& parsed, const model::ModelConfig& model, int64_t seq,
                             comm::World& world) {
  const nn::LayerList layers = model::build_layers(model, seq, config::tuning_of(parsed.config));
  AdviceQuestion question = question_of(parsed, layers, seq, world);
  Advice advice = advise(question);
  const bool adopted = !parsed.given(kStage) && parsed.settled(kStage);  // from a checkpoint
  if (!advice.chosen && adopted) {
    log_warning(
        "[resume] stage {} of the checkpoint does not fit here: chose another, which may sum in another "
        "order",
        parsed.config.zero.stage);
    const Device::Kind kind = question.options.device.kind;
    question.choices.stages = all_choices(kind, question.options.mesh, question.choices.limits).stages;
    question.any_order = !parsed.given("zeno.order");
    advice = advise(question);
  }
  if (!advice.chosen) {
    log_warning("[auto] no setting fits a rank: {}", advice.reasons.back());
    return std::nullopt;
  }
  log_info("chosen: {}: {}", flags_of(*advice.chosen), why(advice));
  const Setting& s = advice.chosen->row.setting;
  return Chosen{
      s.stage,   s.homes, s.recompute, s.micro_batch, advice.chosen->micro_batches, advice.chosen->order,
      s.overlap, s.groups};
}

void apply(config::ParsedConfig& parsed, const Chosen& chosen) {
  config::TrainConfig& config = parsed.config;
  const auto set = [&](std::string_view key, auto& field, auto value) {
    if (parsed.given(key) || field == value) return;
    field = value;
    parsed.derive(key, "chosen by the planner");
  };
  set(kStage, config.zero.stage, int64_t(chosen.stage));
  set("zero_optimization.overlap_comm", config.zero.overlap_comm, chosen.overlap);
  const auto group = [&](zero::Sharding sharding) {
    return int64_t(chosen.groups.sharding == sharding ? chosen.groups.ranks : 0);
  };
  if (const int64_t ranks = group(zero::Sharding::in_groups); ranks > 0)
    set("zero_optimization.mics_shard_size", config.zero.shard_group, ranks);
  if (const int64_t ranks = group(zero::Sharding::params_in_groups); ranks > 0)
    set("zero_optimization.zero_hpz_partition_size", config.zero.param_group, ranks);
  const zero::Offload homes = with(zero::Policy{}, Setting{chosen.stage, chosen.homes}).offload;
  // On a GPU as much as fits stays near.
  if (homes.optimizer != Tier::device)
    set("zero_optimization.offload_optimizer.device", config.zero.offload_optimizer.device,
        homes.optimizer == Tier::disk ? config::OffloadDevice::nvme : config::OffloadDevice::automatic);
  if (homes.params != Tier::device)
    set("zero_optimization.offload_param.device", config.zero.offload_param.device,
        homes.params == Tier::disk ? config::OffloadDevice::nvme : config::OffloadDevice::cpu);
  if (config.recompute.mode != config::RecomputeMode::automatic)
    set("zeno.recompute", config.recompute.mode, config::RecomputeMode(int(chosen.recompute)));
  set(kMicro, config.batch.micro_batch, chosen.micro_batch);
  set(kAccum, config.batch.grad_accum, chosen.micro_batches);
  set("zeno.order", config.run.order,
      chosen.order == zero::Order::vertical ? config::MicroBatchOrder::vertical
                                            : config::MicroBatchOrder::horizontal);
}

// The samples of a step if none of the three sizes is given, or only the accumulation.
void choose_batch(config::ParsedConfig& parsed, int64_t sequences, int64_t seq, int ranks) {
  config::BatchConfig& batch = parsed.config.batch;
  if (batch.train_batch > 0 || batch.micro_batch > 0) return;
  const int64_t granule = std::max<int64_t>(1, batch.grad_accum) * ranks;
  batch.train_batch = config::default_batch(sequences, seq, granule);
  parsed.derive(kTrain, "default for this much data");
  log_info(
      "chosen: {} sequence{} per step ({} tokens): about 32k tokens, or 50 steps per epoch; choose with "
      "--train-batch",
      batch.train_batch, batch.train_batch == 1 ? "" : "s", batch.train_batch * seq);
}

// What rank 0 works out, on all ranks. That may take longer than ranks wait for each other (a machine is
// measured, a large model planned), so all of them meet every moment until it is done.
std::string from_rank_0(comm::World& world, const std::function<std::string()>& work) {
  std::packaged_task<std::string()> task(work);
  std::future<std::string> result = task.get_future();
  std::jthread thread;
  if (world.rank() == 0)
    thread = std::jthread([&task] {
      set_log_rank(0);
      task();
    });
  for (;;) {
    const bool done =
        world.rank() == 0 && result.wait_for(std::chrono::milliseconds(200)) == std::future_status::ready;
    const std::string mine = done ? result.get() : "";
    const std::string first = world.exchange(mine, "chosen by the planner").front();
    if (!first.empty()) return first;
  }
}

}  // namespace

void choose_setting(config::ParsedConfig& parsed, const model::ModelConfig& model, int64_t seq_len,
                    int64_t sequences, comm::World& world) {
  log_info("chosen: {}", config::describe_rate(parsed));
  choose_batch(parsed, sequences, seq_len, config::batch_ranks(parsed.config, world.size()));
  constexpr const char* kNone = "none";
  const std::string first = from_rank_0(world, [&]() -> std::string {
    const std::optional<Chosen> chosen = decide(parsed, model, seq_len, world);
    return chosen ? std::string(reinterpret_cast<const char*>(&*chosen), sizeof(*chosen)) : kNone;
  });
  if (first == kNone) {
    config::BatchConfig& batch = parsed.config.batch;
    if (batch.micro_batch == 0) batch.micro_batch = 1;
    return;
  }
  Chosen chosen;
  ensure(first.size() == sizeof(chosen), "[auto] got {} bytes of a setting", first.size());
  std::memcpy(&chosen, first.data(), sizeof(chosen));
  apply(parsed, chosen);
}

}  // namespace zeno::plan
