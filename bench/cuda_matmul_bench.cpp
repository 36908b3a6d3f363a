// Matrix products of a training step on one GPU, on normal random data: plans tuned by us against the first
// choice of cuBLASLt, per shape and summed over a step. Both are timed under sustained load, where the power
// limit sets the clocks as it does in training; ours in short bursts on a cool GPU as well.
//   cuda_matmul_bench [rows = 16384] [plan file]
// The tuned plans are added to the plan file at the end.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/gpu_stream.h"
#include "zeno/device/buffer.h"
#include "zeno/device/copy.h"
#include "zeno/device/stopwatch.h"
#include "zeno/device/stream.h"
#include "zeno/kernels/cuda/matmul/matmul_plans.h"
#include "zeno/kernels/matmul.h"

namespace zeno {
namespace {

using Clock = std::chrono::steady_clock;

struct Linear {
  const char* name;
  int64_t in, out;
  bool bias = false, residual = false;
};

struct Model {
  const char* name;
  int64_t layers, width, vocabulary;
  std::vector<Linear> linears;  // of one layer
};

const std::vector<Model> kModels{{"Llama-3.2-1B",
                                  16,
                                  2048,
                                  128256,
                                  {{"qkv", 2048, 3072},
                                   {"out", 2048, 2048, false, true},
                                   {"up", 2048, 16384},
                                   {"down", 8192, 2048, false, true}}},
                                 {"Qwen2.5-1.5B",
                                  28,
                                  1536,
                                  151936,
                                  {{"qkv", 1536, 2048, true},
                                   {"out", 1536, 1536, false, true},
                                   {"up", 1536, 17920},
                                   {"down", 8960, 1536, false, true}}}};

// Device memory of a fixed size with normal values in bf16, the pattern repeated at an odd length.
class Values {
 public:
  Values(StreamRef stream, int64_t count, const std::vector<BF16>& pattern)
      : block_(allocator_of(kGpu)(size_t(count) * sizeof(BF16))) {
    for (int64_t at = 0; at < count; at += int64_t(pattern.size())) {
      const int64_t piece = std::min(count - at, int64_t(pattern.size()));
      copy_async(stream, block_.data + size_t(at) * sizeof(BF16),
                 reinterpret_cast<const std::byte*>(pattern.data()), size_t(piece) * sizeof(BF16));
    }
    stream.synchronize();
  }
  ~Values() { block_.release(block_.data); }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;

  Tensor view(DType dtype, int64_t rows, int64_t cols) const { return {block_.data, dtype, rows, cols}; }

 private:
  Block block_;
};

std::vector<BF16> normal_values(uint64_t seed) {
  std::vector<BF16> values((1 << 24) - 3);
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  for (BF16& value : values) value = BF16(normal(engine));
  return values;
}

// Seconds: of one product, or of all in a step.
struct Total {
  double first = 0, tuned = 0, burst = 0, flops = 0;

  void add(const Total& one, double times) {
    first += one.first * times;
    tuned += one.tuned * times;
    burst += one.burst * times;
    flops += one.flops * times;
  }
  void print(double unit) const {
    std::printf(" %9.1f %9.1f %9.1f %8.1f %8.1f %8.1f %7.3f\n", first / unit, tuned / unit, burst / unit,
                flops / first * 1e-12, flops / tuned * 1e-12, flops / burst * 1e-12, first / tuned);
    std::fflush(stdout);
  }
};

class Bench {
 public:
  explicit Bench(int64_t rows)
      : rows_(rows),
        a_(stream_, most_values(), normal_values(1)),
        b_(stream_, most_values(), normal_values(2)),
        c_(stream_, most_values(), normal_values(3)),
        residual_(stream_, most_values(), normal_values(4)) {}

  void run(const Model& model) {
    std::printf("\n%s, %ld rows; sustained: first choice and ours, burst: ours; µs, then TFLOP/s\n",
                model.name, rows_);
    std::printf("%-6s %-8s %7s %7s %7s %9s %9s %9s %8s %8s %8s %7s\n", "", "", "M", "N", "K", "first", "ours",
                "burst", "first", "ours", "burst", "gain");
    Total fp32, bf16;  // by the dtype of the weight gradients
    for (const Linear& linear : model.linears) add_linear(linear, rows_, double(model.layers), fp32, bf16);
    for (int64_t chunk : {2048, 4096}) {
      Total step32 = fp32, step16 = bf16;
      add_linear({"head", model.width, model.vocabulary}, chunk, double(rows_) / double(chunk), step32,
                 step16);
      const std::string name = "step, head by " + std::to_string(chunk) + " rows, dW in ";
      std::printf("%-39s", (name + "fp32, ms").c_str());
      step32.print(1e-3);
      std::printf("%-39s", (name + "bf16, ms").c_str());
      step16.print(1e-3);
    }
  }

 private:
  int64_t most_values() const {
    int64_t most = 0;
    for (const Model& m : kModels) {
      most = std::max({most, m.vocabulary * m.width * 2, m.vocabulary * 4096});
      for (const Linear& l : m.linears)
        most = std::max({most, rows_ * l.in, rows_ * l.out, l.in * l.out * 2});
    }
    return most;
  }

  void add_linear(const Linear& l, int64_t rows, double times, Total& fp32, Total& bf16) {
    constexpr DType kType = DType::bf16;
    const Tensor dy = a_.view(kType, rows, l.out), weight = b_.view(kType, l.out, l.in);
    Matmul forward{
        .a = a_.view(kType, rows, l.in), .b = weight, .c = c_.view(kType, rows, l.out), .transpose_b = true};
    if (l.bias) forward.bias = residual_.view(kType, 1, l.out);
    if (l.residual) forward.residual = residual_.view(kType, rows, l.out);
    const Total y = measure(l.name, l.bias ? "Y +bias" : l.residual ? "Y +res" : "Y", forward);
    const Total dx = measure(l.name, "dX", {.a = dy, .b = weight, .c = c_.view(kType, rows, l.in)});
    Matmul gradient{.a = dy, .b = b_.view(kType, rows, l.in), .transpose_a = true, .accumulate = true};
    gradient.c = c_.view(DType::f32, l.out, l.in);
    const Total dw32 = measure(l.name, "dW fp32", gradient);
    gradient.c = c_.view(kType, l.out, l.in);
    const Total dw16 = measure(l.name, "dW bf16", gradient);
    for (Total* total : {&fp32, &bf16}) {
      total->add(y, times);
      total->add(dx, times);
    }
    fp32.add(dw32, times);
    bf16.add(dw16, times);
  }

  Total measure(const char* name, const char* form, const Matmul& op) {
    fill_zero_async(stream_, op.c.data, op.c.bytes());
    const int64_t depth = op.transpose_a ? op.a.rows : op.a.cols;
    Total total{.flops = 2.0 * double(op.c.rows) * double(op.c.cols) * double(depth)};
    total.first = sustained(op);
    {
      const cuda::MatmulTuning tuning;
      matmul(stream_, op);
    }
    fill_zero_async(stream_, op.c.data, op.c.bytes());
    total.tuned = sustained(op);
    total.burst = burst(op);
    std::printf("%-6s %-8s %7ld %7ld %7ld", name, form, op.c.rows, op.c.cols, depth);
    total.print(1e-6);
    return total;
  }

  // Seconds of one product when the GPU has been at work for long: what comes before the timed part lets
  // its clocks settle.
  double sustained(const Matmul& op) {
    constexpr double kSettle = 0.25, kTimed = 0.2;
    series(op, 2);
    const double about = series(op, 5);
    const auto runs = [&](double seconds) { return std::max(int(seconds / about), 3); };
    for (int i = 0; i < runs(kSettle); ++i) matmul(stream_, op);
    watch_->mark(stream_, 0);
    const int timed = runs(kTimed);
    for (int i = 0; i < timed; ++i) matmul(stream_, op);
    watch_->mark(stream_, 1);
    stream_.synchronize();
    return (watch_->us(1) - watch_->us(0)) * 1e-6 / timed;
  }
  // ... and of a few in a row after a rest: the median of five such.
  double burst(const Matmul& op) {
    constexpr double kSeconds = 0.002;
    const int runs = int(std::clamp(kSeconds / series(op, 3), 1.0, 100.0));
    std::vector<double> times;
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      times.push_back(series(op, runs));
    }
    std::ranges::sort(times);
    return times[2];
  }
  double series(const Matmul& op, int runs) {
    stream_.synchronize();
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < runs; ++i) matmul(stream_, op);
    stream_.synchronize();
    return std::chrono::duration<double>(Clock::now() - begin).count() / runs;
  }

  const int64_t rows_;
  GpuStream stream_;
  const std::unique_ptr<Stopwatch> watch_ = make_stopwatch(kGpu, 2);
  const Values a_, b_, c_, residual_;
};

}  // namespace
}  // namespace zeno

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::atol(argv[1]) : 16384;
  {
    zeno::Bench bench(rows);
    for (const zeno::Model& model : zeno::kModels) bench.run(model);
  }
  std::printf("\n%s", zeno::cuda::describe_matmul_plans().c_str());
  if (argc > 2) zeno::cuda::save_matmul_plans(argv[2]);
  return 0;
}
