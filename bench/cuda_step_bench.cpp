// Whole training steps of real model shapes on one GPU: tokens per second, memory planned and seen, and where
// the time goes. tools/cuda_bench.py runs it beside PyTorch and the floor of the same machine.
//   cuda_step_bench llama-1b --seq 4096 --batch 4 [--accum 1] [--steps 10] [--grad bf16] [--recompute auto]
//   [--memory GIB] [--matmul-dtype fp8] [--split] [--limit-gpu-clock]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "zeno/base/rng.h"
#include "zeno/comm/world.h"
#include "zeno/device/clock_limit.h"
#include "zeno/kernels/cuda/matmul/matmul_plans.h"
#include "zeno/model/init.h"
#include "zeno/model/layers.h"
#include "zeno/plan/recompute.h"
#include "zeno/zero/engine.h"

using namespace zeno;

namespace {

struct Options {
  std::string model = "llama-1b", grad = "fp32", states = "fp32", recompute = "auto", matmul = "bf16", plans;
  int64_t batch = 4, seq = 4096;
  int accum = 1, steps = 10, threads = 1, stage = 0;
  double memory = 0;  // GiB; 0: what the GPU has
  bool split = false, show_plans = false, limit_clock = false;
};

constexpr double kGib = double(size_t(1) << 30);
constexpr int kWarmUp = 3;             // steps before those that are timed
constexpr double kLimitPatience = 30;  // seconds until the clock should be limited

using model::Arch;
const std::map<std::string, model::InitOptions> kModels{
    {"gpt2-124m", {.arch = Arch::gpt2, .hidden = 768, .layers = 12, .heads = 12, .vocab = 50304}},
    {"llama-1b",
     {.arch = Arch::llama,
      .hidden = 2048,
      .layers = 16,
      .heads = 32,
      .kv_heads = 8,
      .intermediate = 8192,
      .vocab = 128256,
      .max_positions = 8192,
      .tied = true}},
    {"llama-8b",
     {.arch = Arch::llama,
      .hidden = 4096,
      .layers = 32,
      .heads = 32,
      .kv_heads = 8,
      .intermediate = 14336,
      .vocab = 128256,
      .max_positions = 8192,
      .tied = false}},
    {"qwen-0.5b",
     {.arch = Arch::qwen2,
      .hidden = 896,
      .layers = 24,
      .heads = 14,
      .kv_heads = 2,
      .intermediate = 4864,
      .vocab = 151936,
      .max_positions = 8192,
      .tied = true}},
    {"qwen-1.5b",
     {.arch = Arch::qwen2,
      .hidden = 1536,
      .layers = 28,
      .heads = 12,
      .kv_heads = 2,
      .intermediate = 8960,
      .vocab = 151936,
      .max_positions = 8192,
      .tied = true}},
    {"qwen-7b",
     {.arch = Arch::qwen2,
      .hidden = 3584,
      .layers = 28,
      .heads = 28,
      .kv_heads = 4,
      .intermediate = 18944,
      .vocab = 152064,
      .max_positions = 8192,
      .tied = false}},
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct TokenBatch {
  TokenBatch(nn::BatchShape shape, int64_t vocab, uint64_t seed) {
    for (int64_t r = 0; r < shape.rows(); ++r) {
      tokens.push_back(int32_t(random_bits(seed, 1, uint64_t(r)) % uint64_t(vocab)));
      targets.push_back(int32_t(random_bits(seed, 2, uint64_t(r)) % uint64_t(vocab)));
      positions.push_back(int32_t(r % shape.seq));
      rows.push_back(int32_t(r));
    }
  }
  zero::MicroBatch view() const { return {tokens, targets, positions, {}, rows}; }
  std::vector<int32_t> tokens, targets, positions, rows;
};

// Normal values from a table whose length shares no factor with any row: drawing each would take a minute.
void load_random(zero::Engine& engine) {
  constexpr size_t kValues = 65537;
  std::vector<float> table(kValues);
  for (size_t i = 0; i < kValues; ++i) table[i] = float(random_normal(1, 1, i));
  engine.load([&](const nn::Parameter& param, int64_t begin, std::span<float> out) {
    const float scale = param.init.kind == nn::Init::Kind::normal ? param.init.stddev : 0;
    const float shift = param.init.kind == nn::Init::Kind::ones ? 1 : 0;
    for (size_t i = 0; i < out.size(); ++i) out[i] = shift + scale * table[(size_t(begin) + i) % kValues];
  });
}

double step_flops(const nn::LayerList& model, nn::BatchShape shape) {
  double flops = model.loss->work(shape, DType::f32).forward.flops();
  for (const auto& layer : model.layers)
    flops += layer->work(shape, DType::f32, nn::Recompute::none).forward.flops();
  return 3 * flops;
}

zero::EngineOptions engine_options(const Options& o, int ranks) {
  zero::EngineOptions options{
      .mesh = comm::Mesh::flat(ranks), .shape = {o.batch, o.seq}, .device = {Device::Kind::cuda, 0}};
  if (o.split) options.timing = zero::Timing::every;
  zero::apply_stage(options.policy, o.stage);
  options.policy.compute = DType::bf16;
  options.policy.grad = options.policy.wire = *parse_dtype(o.grad);
  options.policy.micro_batches = o.accum;
  options.policy.fp8 = o.matmul == "fp8";
  options.policy.states = *parse_dtype(o.states);
  if (o.recompute == "selective") options.policy.recompute = nn::Recompute::selective;
  if (o.recompute == "full") options.policy.recompute = nn::Recompute::full;
  return options;
}

// Milliseconds of the last step by kind of instruction.
void print_split(const zero::Engine& engine) {
  std::map<std::string, double> split;
  const std::vector<zero::InstructionTime> times = engine.executor().times();
  for (size_t i = 0; i < times.size(); ++i) {
    const zero::Instruction& in = engine.program().instructions[i];
    split[std::string(zero::name_of(in))] += (times[i].end - times[i].start) / 1000;
  }
  for (const auto& [name, ms] : split) fmt::print("    {:<12} {:8.2f} ms\n", name, ms);
}

void bench(const Options& o, comm::World& world) {
  const model::ModelConfig config = model::make_config(kModels.at(o.model));
  nn::LayerList layers = model::build_layers(config, o.seq);
  zero::EngineOptions options = engine_options(o, world.size());
  const size_t all = available_memory(options.device) + library_memory(options.device.kind).context;
  const size_t limit = o.memory > 0 ? size_t(o.memory * kGib) : all - (size_t(128) << 20);
  if (o.recompute == "auto") plan::choose_recompute(layers, options, limit);
  const std::string recompute = plan::describe_recompute(layers, options.policy);
  const double flops = step_flops(layers, {o.batch, o.seq}) * o.accum;
  const double start = now();
  zero::Engine engine(std::move(layers), options, world);
  load_random(engine);
  const double ready = now() - start;
  if (o.show_plans && world.rank() == 0) fmt::print("{}\n", cuda::describe_matmul_plans());

  const TokenBatch batch({o.batch, o.seq}, config.vocab, uint64_t(world.rank()) + 1);
  const std::vector<zero::MicroBatch> batches(size_t(o.accum), batch.view());
  std::vector<double> ends;
  std::vector<double> losses;
  const auto control = [](int step) {
    return zero::StepControl{.hyper = {.lr = 1e-5, .step = step + 1}, .clip = 1};
  };
  std::optional<ClockLimit> clock;
  if (o.limit_clock) clock.emplace(pci_address(options.device)).begin();
  const double began = now();
  engine.submit(batches, control(0));
  for (int step = 1, warm = 0; int(ends.size()) < warm + o.steps; ++step) {
    engine.submit(batches, control(step));
    losses.push_back(engine.collect().loss);
    ends.push_back(now());
    const bool unlimited = clock && clock->clock() == 0 && now() - began < kLimitPatience;
    if (step <= kWarmUp || unlimited) ++warm;
  }
  engine.collect();
  if (world.rank() != 0) return;
  std::vector<double> times;
  for (size_t i = ends.size() - size_t(o.steps); i < ends.size(); ++i) times.push_back(ends[i] - ends[i - 1]);
  std::sort(times.begin(), times.end());
  const double ms = times[times.size() / 2] * 1000;
  const double tokens = double(o.batch * o.seq * o.accum * world.size());
  fmt::print(
      "OURS {:<10} T={}x{}x{} ranks {} stage {} matmul {} grads {}: {:8.0f} tok/s  {:8.2f} ms  {:5.0f} "
      "TFLOP/s  "
      "planned {:.2f} GiB, "
      "driver {:.2f} GiB; {}; ready {:.0f} s; losses {:.4f} {:.4f} .. {:.4f}\n",
      o.model, o.seq, o.batch, o.accum, world.size(), o.stage, o.matmul, o.grad, tokens / ms * 1000, ms,
      flops / ms / 1e9, double(engine.ledger().booked(Tier::device)) / kGib,
      double(total_memory(options.device) - available_memory(options.device)) / kGib, recompute, ready,
      losses[0], losses[1], losses.back());
  if (o.split) print_split(engine);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("whole training steps on one GPU");
  Options o;
  app.add_option("model", o.model)->check(CLI::IsMember(kModels));
  app.add_option("--batch", o.batch);
  app.add_option("--seq", o.seq);
  app.add_option("--accum", o.accum);
  app.add_option("--steps", o.steps, "that are timed")->check(CLI::Range(1, 1'000'000));
  app.add_option("--grad", o.grad);
  app.add_option("--states", o.states, "masters and moments: fp32, or bf16 with stochastic rounding");
  app.add_option("--stage", o.stage);
  app.add_option("--ranks", o.threads, "ranks as threads that share the GPU");
  app.add_option("--recompute", o.recompute)->check(CLI::IsMember({"none", "selective", "full", "auto"}));
  app.add_option("--memory", o.memory, "GiB that --recompute auto may fill, the context included");
  app.add_option("--matmul-dtype", o.matmul, "of the products of blocks")
      ->check(CLI::IsMember({"bf16", "fp8"}));
  app.add_option("--plans", o.plans, "file of matmul plans");
  app.add_flag("--split", o.split, "time by kind of instruction (no graph)");
  app.add_flag("--show-plans", o.show_plans);
  app.add_flag("--limit-gpu-clock", o.limit_clock, "as zeno train does; steps are timed once it is limited");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!o.plans.empty()) cuda::load_matmul_plans(o.plans);
    comm::run_thread_ranks(o.threads, {}, [&](comm::World& world) { bench(o, world); });
    if (!o.plans.empty()) cuda::save_matmul_plans(o.plans);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_step_bench {}: {}\n", o.model, error.what());
    return 1;
  }
}
