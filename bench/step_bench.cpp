// A whole training step of a GPT-2-124M-shaped model on the CPU: ours, the matmuls of the same shapes alone
// (the limit), PyTorch on the same work when a Python with torch is given, and what stage 3 costs over stage
// 0 on two ranks. Everything in one run; prints milliseconds and ratios.
//   step_bench [--torch PYTHON] [--batch 2] [--seq 512] [--steps 5] [--dtype fp32|bf16]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "tests/support/kernel_stream.h"
#include "zeno/base/rng.h"
#include "zeno/comm/world.h"
#include "zeno/model/init.h"
#include "zeno/model/layers.h"
#include "zeno/zero/engine.h"

using namespace zeno;

namespace {

struct Options {
  std::string torch, dtype = "fp32";
  int64_t batch = 2, seq = 512;
  int steps = 5;
  int threads = 2;
};

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

model::ModelConfig gpt2_124m() {
  return model::make_config(
      {.arch = model::Arch::gpt2, .hidden = 768, .layers = 12, .heads = 12, .vocab = 50257});
}

double step_flops(const nn::LayerList& model, nn::BatchShape shape) {
  double flops = model.loss->work(shape, DType::f32).forward.flops();
  for (const auto& layer : model.layers)
    flops += layer->work(shape, DType::f32, nn::Recompute::none).forward.flops();
  return 3 * flops;
}

// Median seconds of a step on every rank of a world of threads.
double time_steps(const Options& o, int world_size, int stage) {
  double result = 0;
  comm::run_thread_ranks(world_size, {}, [&](comm::World& world) {
    zero::EngineOptions options{.mesh = comm::Mesh::flat(world.size()),
                                .shape = {o.batch / world_size, o.seq},
                                .threads = o.threads / world_size};
    zero::apply_stage(options.policy, stage);
    options.policy.compute = *parse_dtype(o.dtype);
    zero::Engine engine(model::build_layers(gpt2_124m(), o.seq), options, world);
    engine.load([](const nn::Parameter& param, int64_t begin, std::span<float> out) {
      model::initial_values(param, 1, begin, begin + int64_t(out.size()), out.data());
    });
    const int64_t rows = options.shape.rows();
    std::vector<int32_t> tokens, targets, positions, valid;
    for (int64_t r = 0; r < rows; ++r) {
      tokens.push_back(int32_t(random_bits(1, uint64_t(world.rank()), uint64_t(r)) % 50257));
      targets.push_back(int32_t(random_bits(2, uint64_t(world.rank()), uint64_t(r)) % 50257));
      positions.push_back(int32_t(r % o.seq));
      valid.push_back(int32_t(r));
    }
    const zero::MicroBatch batch{tokens, targets, positions, {}, valid};
    std::vector<double> times;
    for (int step = 0; step <= o.steps; ++step) {
      const double s = seconds([&] {
        engine.step({&batch, 1}, {.hyper = {.lr = 1e-4f, .step = step + 1}, .clip = 1});
      });
      if (step > 0) times.push_back(s);
    }
    if (world.rank() == 0) result = median(times);
  });
  return result;
}

// The step's matmuls and nothing else, each at its real shape in its three forms.
double time_matmuls(const Options& o, double* flops) {
  const int64_t m = o.batch * o.seq;
  const std::array<std::array<int64_t, 3>, 5> shapes{
      {{768, 2304, 12}, {768, 768, 12}, {768, 3072, 12}, {3072, 768, 12}, {768, 50257, 1}}};
  KernelStream stream(o.threads);
  double total = 0;
  *flops = 0;
  for (const auto& [k, n, times] : shapes) {
    const DType dtype = *parse_dtype(o.dtype);
    // The head works on chunks of rows, as the loss layer does.
    const int64_t rows = n > 10000 ? std::min<int64_t>(m, 160) : m;
    std::vector<float> x(size_t(rows * k)), w(size_t(n * k)), y(size_t(rows * n)), dw(w.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = random_uniform(1, 1, i) - 0.5f;
    for (size_t i = 0; i < w.size(); ++i) w[i] = random_uniform(1, 2, i) - 0.5f;
    const Tensor tx(x.data(), dtype, rows, k), tw(w.data(), dtype, n, k), ty(y.data(), dtype, rows, n),
        tdw(dw.data(), DType::f32, n, k);
    std::vector<double> runs;
    for (int run = 0; run < 4; ++run) {
      runs.push_back(seconds([&] {
        matmul(stream.ref(), {.a = tx, .b = tw, .c = ty, .transpose_b = true});
        matmul(stream.ref(), {.a = ty, .b = tw, .c = tx});
        matmul(stream.ref(), {.a = ty, .b = tx, .c = tdw, .transpose_a = true, .accumulate = true});
        stream.sync();
      }));
    }
    const double repeats = double(times) * double(m) / double(rows);
    total += median(runs) * repeats;
    *flops += 6.0 * double(rows * n * k) * repeats;
  }
  return total;
}

double time_torch(const Options& o) {
  const std::string command =
      fmt::format("{} tools/torch_step.py --batch {} --seq {} --steps {} --threads {} --dtype {}", o.torch,
                  o.batch, o.seq, o.steps, o.threads, o.dtype);
  FILE* pipe = popen(command.c_str(), "r");
  double ms = 0;
  if (pipe == nullptr || std::fscanf(pipe, "%lf", &ms) != 1)
    std::fprintf(stderr, "torch failed: %s\n", command.c_str());
  if (pipe != nullptr) pclose(pipe);
  return ms / 1000;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("GPT-2-124M training step");
  app.add_option("--torch", o.torch, "a python with torch and transformers");
  app.add_option("--batch", o.batch);
  app.add_option("--seq", o.seq);
  app.add_option("--steps", o.steps);
  app.add_option("--threads", o.threads);
  app.add_option("--dtype", o.dtype);
  CLI11_PARSE(app, argc, argv);

  const double flops = step_flops(model::build_layers(gpt2_124m(), o.seq), {o.batch, o.seq});
  double matmul_flops = 0;
  const double limit = time_matmuls(o, &matmul_flops);
  const double one = time_steps(o, 1, 0);
  const double torch = o.torch.empty() ? 0 : time_torch(o);
  const double stage0 = time_steps(o, 2, 0), stage3 = time_steps(o, 2, 3);
  const double rate = matmul_flops / limit;
  fmt::print("GPT-2-124M, {}×{} tokens, {}, {} threads: {:.2f} TFLOP per step\n", o.batch, o.seq, o.dtype,
             o.threads, flops / 1e12);
  fmt::print("{:<34} {:>9} {:>9}\n", "", "ms", "GFLOP/s");
  fmt::print("{:<34} {:>9.0f} {:>9.0f}\n", "matmuls alone (limit)", limit * 1e3, rate / 1e9);
  fmt::print("{:<34} {:>9.0f} {:>9.0f}  {:.2f} of the matmul rate\n", "ours, 1 rank", one * 1e3,
             flops / one / 1e9, flops / one / rate);
  if (torch > 0)
    fmt::print("{:<34} {:>9.0f} {:>9.0f}  ours is {:.2f}x as fast\n", "PyTorch", torch * 1e3,
               flops / torch / 1e9, torch / one);
  fmt::print("{:<34} {:>9.0f} {:>9.0f}\n", "ours, 2 ranks, stage 0", stage0 * 1e3, flops / stage0 / 1e9);
  fmt::print("{:<34} {:>9.0f} {:>9.0f}  {:+.1f} % over stage 0\n", "ours, 2 ranks, stage 3", stage3 * 1e3,
             flops / stage3 / 1e9, (stage3 / stage0 - 1) * 100);
}
