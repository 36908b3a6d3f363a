#include "zeno/train/auto_setting.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/model/layers.h"
#include "zeno/plan/advice.h"
#include "zeno/plan/measure.h"
#include "zeno/train/config_resolve.h"
#include "zeno/train/policy.h"
#include "zeno/train/setting_choices.h"
#include "zeno/train/tuning.h"

namespace zeno::train {
namespace {

constexpr const char* kStage = "zero_optimization.stage";
constexpr const char* kTrain = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kAccum = "gradient_accumulation_steps";

// What is chosen, as it travels from rank 0 to the others.
struct Chosen {
  int stage = 0;
  plan::Homes homes = plan::Homes::device;
  nn::Recompute recompute = nn::Recompute::none;
  int64_t micro_batch = 1, micro_batches = 1;
  zero::Order order = zero::Order::horizontal;
  bool overlap = false;
};

// The machine as it was measured; measured now, once, where it was not.
plan::Machine machine_of_run(const RunConfig& run, Device::Kind kind) {
  if (std::optional<plan::Machine> measured = plan::measured_machine(run.cache, kind)) return *measured;
  log_info("measuring this machine once, which takes about 20 s; kept in {}",
           plan::machine_file(run.cache, kind).string());
  const plan::Machine machine = plan::measure_machine(
      {.kind = kind,
       .folder = Path(run.out).parent_path().empty() ? Path(".") : Path(run.out).parent_path(),
       .sizes = plan::usual_sizes(kind)});
  make_folders(run.cache);
  plan::save_machine(machine, plan::machine_file(run.cache, kind));
  return machine;
}

// Ranks that share a GPU, or nodes nobody has measured: through the host at best.
plan::Machine with_links(plan::Machine machine, int world) {
  if (machine.links(world)) return machine;
  log_warning(
      "[auto] rates between ranks are not known, taken as those of the host link; see zeno doctor --measure");
  for (plan::Link* link : {&machine.inside, &machine.between})
    if (link->rate == 0) *link = {machine.host_link, 20e-6};
  return machine;
}

plan::AdviceQuestion question_of(const ParsedConfig& parsed, const nn::LayerList& layers, int64_t seq,
                                 comm::World& world) {
  const TrainConfig& config = parsed.config;
  const Device device = device_of(config.run, world.local_rank());
  // Whatever resolves: what is open is set by every option.
  TrainConfig filled = config;
  const bool batch_open = config.batch.micro_batch == 0;
  if (batch_open) filled.batch.micro_batch = filled.batch.grad_accum = 1;
  if (filled.batch.grad_accum == 0) filled.batch.grad_accum = 1;
  const zero::EngineOptions options = engine_options(filled, seq, device);
  const plan::Setting given{int(config.zero.stage), plan::Homes::as_given, options.policy.recompute,
                            std::max<int64_t>(1, config.batch.micro_batch)};
  const plan::MemoryLimits limits = memory_limits(config.run, device, world.local_size());
  return {.model = {layers, {}},
          .options = options,
          .machine = with_links(machine_of_run(config.run, device.kind), world.size()),
          .world = world.size(),
          .choices = open_choices(parsed, given, batch_open, device, world.size(), limits, false),
          .sequences = config.batch.train_batch,
          .goal = plan::Goal::fastest,
          .any_order = !parsed.settled("zeno.order"),
          .next_larger = {}};
}

// Beside what it was held against.
std::string why(const plan::Advice& advice) {
  const plan::StepTime& time = advice.chosen->time;
  std::string others;
  for (const plan::Option& option : advice.tried) {
    const plan::Setting &s = option.row.setting, &chosen = advice.chosen->row.setting;
    if (s.stage == chosen.stage && s.homes == chosen.homes) continue;
    others = fmt::format(", {} would make {:.0f}", plan::flags_of(option), option.time.tokens_per_s);
    break;
  }
  return fmt::format("fits, and nothing simpler is faster: {:.0f} tokens/s and {:.3f} s per step by plan{}",
                     time.tokens_per_s, time.step_s, others);
}

// None: nothing fits. The plain setting is left, and the run is refused with the nearest setting that would.
std::optional<Chosen> decide(const ParsedConfig& parsed, const model::ModelConfig& model, int64_t seq,
                             comm::World& world) {
  const nn::LayerList layers = model::build_layers(model, seq, tuning_of(parsed.config));
  plan::AdviceQuestion question = question_of(parsed, layers, seq, world);
  plan::Advice advice = plan::advise(question);
  const bool adopted = !parsed.given(kStage) && parsed.settled(kStage);  // from a checkpoint
  if (!advice.chosen && adopted) {
    log_warning(
        "[resume] stage {} of the checkpoint does not fit here: another is chosen, which may sum in another "
        "order",
        parsed.config.zero.stage);
    const Device::Kind kind = question.options.device.kind;
    question.choices.stages = plan::all_choices(kind, world.size(), question.choices.limits).stages;
    question.any_order = !parsed.given("zeno.order");
    advice = plan::advise(question);
  }
  if (!advice.chosen) {
    log_warning("[auto] no setting fits a rank: {}", advice.reasons.back());
    return std::nullopt;
  }
  log_info("chosen: {}: {}", plan::flags_of(*advice.chosen), why(advice));
  const plan::Setting& s = advice.chosen->row.setting;
  return Chosen{
      s.stage,  s.homes, s.recompute, s.micro_batch, advice.chosen->micro_batches, advice.chosen->order,
      s.overlap};
}

void apply(ParsedConfig& parsed, const Chosen& chosen) {
  TrainConfig& config = parsed.config;
  const auto set = [&](std::string_view key, auto& field, auto value) {
    if (parsed.given(key) || field == value) return;
    field = value;
    parsed.derive(key, "chosen by the planner");
  };
  set(kStage, config.zero.stage, int64_t(chosen.stage));
  set("zero_optimization.overlap_comm", config.zero.overlap_comm, chosen.overlap);
  const zero::Offload homes = plan::with({}, plan::Setting{chosen.stage, chosen.homes}).policy.offload;
  // On a GPU as much as fits stays near.
  if (homes.optimizer != Tier::device)
    set("zero_optimization.offload_optimizer.device", config.zero.offload_optimizer.device,
        homes.optimizer == Tier::disk ? OffloadDevice::nvme : OffloadDevice::automatic);
  if (homes.params != Tier::device)
    set("zero_optimization.offload_param.device", config.zero.offload_param.device,
        homes.params == Tier::disk ? OffloadDevice::nvme : OffloadDevice::cpu);
  if (config.recompute.mode != RecomputeMode::automatic)
    set("zeno.recompute", config.recompute.mode, RecomputeMode(int(chosen.recompute)));
  set(kMicro, config.batch.micro_batch, chosen.micro_batch);
  set(kAccum, config.batch.grad_accum, chosen.micro_batches);
  set("zeno.order", config.run.order,
      chosen.order == zero::Order::vertical ? MicroBatchOrder::vertical : MicroBatchOrder::horizontal);
}

// The samples of a step where nobody has said any of the three sizes, or only the accumulation.
void choose_batch(ParsedConfig& parsed, int64_t sequences, int64_t seq, int world) {
  BatchConfig& batch = parsed.config.batch;
  if (batch.train_batch > 0 || batch.micro_batch > 0) return;
  const int64_t granule = std::max<int64_t>(1, batch.grad_accum) * world;
  batch.train_batch = default_batch(sequences, seq, granule);
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
    const std::string first = world.exchange(mine, "setting of the planner").front();
    if (!first.empty()) return first;
  }
}

}  // namespace

void choose_setting(ParsedConfig& parsed, const model::ModelConfig& model, int64_t seq_len, int64_t sequences,
                    comm::World& world) {
  log_info("chosen: {}", describe_rate(parsed));
  choose_batch(parsed, sequences, seq_len, world.size());
  constexpr const char* kNone = "none";
  const std::string first = from_rank_0(world, [&]() -> std::string {
    const std::optional<Chosen> chosen = decide(parsed, model, seq_len, world);
    return chosen ? std::string(reinterpret_cast<const char*>(&*chosen), sizeof(*chosen)) : kNone;
  });
  if (first == kNone) {
    BatchConfig& batch = parsed.config.batch;
    if (batch.micro_batch == 0) batch.micro_batch = 1;
    return;
  }
  Chosen chosen;
  ensure(first.size() == sizeof(chosen), "[auto] got {} bytes of a setting", first.size());
  std::memcpy(&chosen, first.data(), sizeof(chosen));
  apply(parsed, chosen);
}

}  // namespace zeno::train
