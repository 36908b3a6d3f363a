// Memory-bound kernels on one GPU at the sizes of Llama-3.2-1B, on random data: time, bytes that have to move
// per second, and that as a share of what a device-to-device copy reaches in the same run.
//   cuda_kernels_bench [rows = 16384] [repeats = 20]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "zeno/base/rng.h"
#include "zeno/device/buffer.h"
#include "zeno/device/copy.h"
#include "zeno/device/stopwatch.h"
#include "zeno/device/stream.h"
#include "zeno/kernels/activation.h"
#include "zeno/kernels/cross_entropy.h"
#include "zeno/kernels/elementwise.h"
#include "zeno/kernels/embedding.h"
#include "zeno/kernels/grad_scan.h"
#include "zeno/kernels/matmul.h"
#include "zeno/kernels/norm.h"
#include "zeno/kernels/optimizer.h"
#include "zeno/kernels/rope.h"

namespace zeno {
namespace {

constexpr Device kGpu{Device::Kind::cuda, 0};
constexpr int64_t kWidth = 2048, kHidden = 8192, kVocabulary = 128256;

class Memory {
 public:
  explicit Memory(size_t bytes) : block_(allocator_of(kGpu)(bytes)) {}
  ~Memory() { block_.release(block_.data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return block_.data; }

 private:
  Block block_;
};

class Bench {
 public:
  explicit Bench(int repeats)
      : repeats_(repeats),
        scratch_(kernel_scratch_bytes(Device::Kind::cuda)),
        stream_(Stream({.device = kGpu,
                        .name = "bench",
                        .scratch = scratch_.data(),
                        .scratch_bytes = kernel_scratch_bytes(Device::Kind::cuda)})),
        clock_(make_stopwatch(kGpu, size_t(repeats) + 1)),
        pattern_((1 << 22) - 3) {
    std::mt19937_64 engine(1);
    std::normal_distribution<float> normal;
    for (float& value : pattern_) value = normal(engine);
  }

  StreamRef stream() const { return stream_; }

  // Normal values times `scale`, in memory that lives until drop().
  Tensor values(DType dtype, int64_t rows, int64_t cols, float scale = 1) {
    const Tensor t = room(dtype, rows, cols);
    dispatch_float(dtype, [&]<class T>() {
      std::vector<T> pattern(pattern_.size());
      for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = T(pattern_[i] * scale);
      fill(t, pattern);
    });
    return t;
  }
  Tensor ids(int64_t count, int64_t limit) {
    const Tensor t = room(DType::i32, 1, count);
    std::vector<int32_t> pattern(static_cast<size_t>(count));
    for (size_t i = 0; i < pattern.size(); ++i) {
      const double u = random_uniform(3, 1, i);
      pattern[i] = int32_t(double(limit) * u * u * u);  // some ids come often, as words do
    }
    fill(t, pattern);
    return t;
  }
  Tensor zeros(DType dtype, int64_t rows, int64_t cols) {
    const Tensor t = room(dtype, rows, cols);
    fill_zero_async(stream_, t.data, t.bytes());
    return t;
  }
  void drop() {
    stream_.synchronize();
    memory_.clear();
  }

  // Median over the repeats; `bytes` is what the operation has to move.
  double measure(const char* name, double bytes, const std::function<void(StreamRef)>& run) {
    run(stream_);
    for (int i = 0; i < repeats_; ++i) {
      clock_->mark(stream_, size_t(i));
      run(stream_);
    }
    clock_->mark(stream_, size_t(repeats_));
    stream_.synchronize();
    std::vector<double> us;
    for (int i = 0; i < repeats_; ++i) us.push_back(clock_->us(size_t(i) + 1) - clock_->us(size_t(i)));
    std::sort(us.begin(), us.end());
    const double median = us[us.size() / 2], rate = bytes / median / 1e3;
    if (copy_rate_ == 0) copy_rate_ = rate;
    std::printf("%-34s %10.1f us %8.0f GB/s %6.1f %% of the copy\n", name, median, rate,
                100 * rate / copy_rate_);
    std::fflush(stdout);
    return median;
  }

 private:
  Tensor room(DType dtype, int64_t rows, int64_t cols) {
    memory_.push_back(std::make_unique<Memory>(size_t(rows * cols) * size_of(dtype)));
    return {memory_.back()->data(), dtype, rows, cols};
  }
  template <class T>
  void fill(const Tensor& t, const std::vector<T>& pattern) {
    for (int64_t at = 0; at < t.count(); at += int64_t(pattern.size())) {
      const int64_t piece = std::min(t.count() - at, int64_t(pattern.size()));
      copy_async(stream_, t.data + size_t(at) * sizeof(T), reinterpret_cast<const std::byte*>(pattern.data()),
                 size_t(piece) * sizeof(T));
    }
    stream_.synchronize();
  }

  int repeats_;
  Memory scratch_;
  Stream stream_;
  std::unique_ptr<Stopwatch> clock_;
  std::vector<float> pattern_;
  std::vector<std::unique_ptr<Memory>> memory_;
  double copy_rate_ = 0;
};

void bench_copy(Bench& bench) {
  const Tensor a = bench.values(DType::bf16, 1, int64_t(1) << 29),
               b = bench.zeros(DType::bf16, 1, int64_t(1) << 29);
  bench.measure("copy, 1 GiB", 2.0 * double(a.bytes()),
                [&](StreamRef s) { copy_async(s, b.data, a.data, a.bytes()); });
  const Tensor wide = bench.zeros(DType::f32, 1, int64_t(1) << 28);
  const Tensor half(a.data, DType::bf16, 1, int64_t(1) << 28);
  bench.measure("cast bf16 to f32, 256M", 6.0 * double(wide.cols), [&](StreamRef s) { cast(s, half, wide); });
  bench.measure("add f32 += bf16, 256M", 10.0 * double(wide.cols),
                [&](StreamRef s) { add(s, wide, half, wide); });
  bench.drop();
}

void bench_norm(Bench& bench, int64_t rows, int64_t width) {
  std::printf("-- rows of %lld\n", static_cast<long long>(width));
  const Tensor x = bench.values(DType::bf16, rows, width), dy = bench.values(DType::bf16, rows, width);
  const Tensor residual = bench.values(DType::bf16, rows, width), y = bench.zeros(DType::bf16, rows, width);
  const Tensor sum = bench.zeros(DType::bf16, rows, width), weight = bench.values(DType::bf16, 1, width);
  const Tensor rstd = bench.zeros(DType::f32, rows, 1), mean = bench.zeros(DType::f32, rows, 1);
  const Tensor dweight = bench.zeros(DType::f32, 1, width);
  const double bytes = double(x.bytes());
  bench.measure("rmsnorm forward", 2 * bytes,
                [&](StreamRef s) { rmsnorm_forward(s, {.x = x, .weight = weight, .y = y, .rstd = rstd}); });
  bench.measure("rmsnorm forward with residual", 4 * bytes, [&](StreamRef s) {
    rmsnorm_forward(s, {.x = x, .residual = residual, .sum = sum, .weight = weight, .y = y, .rstd = rstd});
  });
  bench.measure("rmsnorm backward", 4 * bytes, [&](StreamRef s) {
    rmsnorm_backward(s, {.x = x,
                         .weight = weight,
                         .rstd = rstd,
                         .dy = dy,
                         .dresidual = residual,
                         .dx = y,
                         .dweight = dweight});
  });
  bench.measure("layernorm forward", 2 * bytes, [&](StreamRef s) {
    layernorm_forward(s, {.x = x, .weight = weight, .bias = weight, .y = y, .rstd = rstd, .mean = mean});
  });
  bench.measure("layernorm backward", 4 * bytes, [&](StreamRef s) {
    layernorm_backward(s, {.x = x,
                           .weight = weight,
                           .rstd = rstd,
                           .mean = mean,
                           .dy = dy,
                           .dresidual = residual,
                           .dx = y,
                           .dweight = dweight,
                           .dbias = dweight});
  });
  bench.drop();
}

// Rope alone with the heads of Llama-3.2-1B, rope and QK-norm with those of Qwen3-0.6B.
void bench_rope(Bench& bench, int64_t rows, bool norm) {
  const int64_t q_heads = norm ? 16 : 32, k_heads = 8, dim = norm ? 128 : 64,
                turned = (q_heads + k_heads) * dim;
  const Tensor qkv = bench.values(DType::bf16, rows, turned + k_heads * dim);
  const Tensor raw = bench.values(DType::bf16, rows, turned), weight = bench.values(DType::bf16, 1, dim);
  const Tensor rstd = bench.zeros(DType::f32, rows, q_heads + k_heads),
               dweight = bench.zeros(DType::f32, 1, dim);
  const Tensor table = bench.values(DType::f32, 4096, dim, 0.5f), positions = bench.ids(rows, 4096);
  RopeForward forward;
  forward.x = forward.y = qkv;
  forward.positions = positions, forward.table = table;
  forward.q_heads = q_heads, forward.k_heads = k_heads, forward.head_dim = dim;
  RopeBackward backward;
  backward.dx = qkv;
  backward.positions = positions, backward.table = table;
  backward.q_heads = q_heads, backward.k_heads = k_heads, backward.head_dim = dim;
  const double bytes = double(raw.bytes());
  const auto run_forward = [&](StreamRef s) { rope_forward(s, forward); };
  const auto run_backward = [&](StreamRef s) { rope_backward(s, backward); };
  if (!norm) {
    bench.measure("rope forward", 2 * bytes, run_forward);
    bench.measure("rope backward", 2 * bytes, run_backward);
  } else {
    forward.q_weight = forward.k_weight = backward.q_weight = backward.k_weight = weight;
    forward.rstd = backward.rstd = rstd;
    bench.measure("qk-norm + rope forward", 2 * bytes, run_forward);
    forward.raw = backward.x = raw;
    bench.measure("qk-norm + rope forward, raw kept", 3 * bytes, run_forward);
    backward.dq_weight = backward.dk_weight = dweight;
    bench.measure("qk-norm + rope backward", 3 * bytes, run_backward);
  }
  bench.drop();
}

void bench_activation(Bench& bench, int64_t rows) {
  const Tensor gate_up = bench.values(DType::bf16, rows, 2 * kHidden),
               y = bench.values(DType::bf16, rows, kHidden);
  const Tensor out = bench.zeros(DType::bf16, rows, 2 * kHidden), x = gate_up.columns(0, kHidden);
  const double bytes = double(y.bytes());
  bench.measure("swiglu forward", 3 * bytes, [&](StreamRef s) { swiglu_forward(s, gate_up, y); });
  bench.measure("swiglu backward", 5 * bytes, [&](StreamRef s) { swiglu_backward(s, gate_up, y, out); });
  bench.measure("gelu (tanh) forward", 2 * bytes, [&](StreamRef s) { gelu_forward(s, Gelu::tanh, x, y); });
  bench.measure("gelu (exact) forward", 2 * bytes, [&](StreamRef s) { gelu_forward(s, Gelu::exact, x, y); });
  bench.measure("gelu (exact) backward", 3 * bytes,
                [&](StreamRef s) { gelu_backward(s, Gelu::exact, x, y, out.columns(0, kHidden)); });
  bench.drop();
}

void bench_embedding(Bench& bench, int64_t rows) {
  const Tensor tokens = bench.ids(rows, kVocabulary), dy = bench.values(DType::bf16, rows, kWidth);
  const Tensor table = bench.values(DType::bf16, kVocabulary, kWidth);
  const Tensor dtable = bench.zeros(DType::f32, kVocabulary, kWidth);
  const double bytes = double(dy.bytes());
  bench.measure("embedding forward", 2 * bytes,
                [&](StreamRef s) { embedding_forward(s, {.tokens = tokens, .table = table, .y = dy}); });
  bench.measure("embedding backward (dy only)", bytes,
                [&](StreamRef s) { embedding_backward(s, tokens, dy, dtable); });
  bench.measure("gather rows", 2 * bytes, [&](StreamRef s) { gather_rows(s, table, tokens, dy); });
  bench.drop();
}

void bench_loss(Bench& bench) {
  constexpr int64_t kRows = 2048;
  const Tensor logits = bench.values(DType::bf16, kRows, kVocabulary),
               targets = bench.ids(kRows, kVocabulary);
  const Tensor losses = bench.zeros(DType::f32, 1, kRows), hits = bench.zeros(DType::i32, 1, kRows);
  const double bytes = double(logits.bytes());
  bench.measure("cross entropy, loss only", bytes, [&](StreamRef s) {
    cross_entropy(s, {.logits = logits, .targets = targets, .losses = losses});
  });
  bench.measure("cross entropy with gradient", 2 * bytes, [&](StreamRef s) {
    cross_entropy(
        s, {.logits = logits, .targets = targets, .losses = losses, .hits = hits, .grad_scale = 1e-3f});
  });
  bench.drop();
}

void bench_scan(Bench& bench) {
  constexpr int64_t kCount = int64_t(1) << 29;
  const Tensor result = bench.zeros(DType::u8, 1, int64_t(sizeof(GradScan)));
  for (DType dtype : {DType::bf16, DType::f32}) {
    const Tensor grad = bench.values(dtype, 1, kCount, 1e-3f);
    bench.measure(dtype == DType::bf16 ? "grad_scan bf16, 512M" : "grad_scan f32, 512M", double(grad.bytes()),
                  [&](StreamRef s) { grad_scan(s, grad, reinterpret_cast<GradScan*>(result.data)); });
  }
  bench.drop();
}

void bench_optimizer(Bench& bench) {
  constexpr int64_t kCount = int64_t(1) << 28;
  const Tensor grad = bench.values(DType::bf16, 1, kCount, 1e-3f),
               param = bench.values(DType::bf16, 1, kCount);
  const Tensor factor = bench.values(DType::f32, 1, 1);
  struct Kept {
    const char* name;
    DType master, moments;
    double bytes;
  };
  for (const Kept& kept : {Kept{"adamw, fp32 states, 256M", DType::f32, DType::f32, 2 + 6 * 4 + 2},
                           Kept{"adamw, split masters, 256M", DType::i16, DType::f32, 2 + 4 + 4 * 4 + 4},
                           Kept{"adamw, bf16 states, 256M", DType::bf16, DType::bf16, 2 + 6 * 2}}) {
    const DType filled = kept.master == DType::f32 ? DType::f32 : DType::bf16;
    const Tensor master(bench.values(filled, 1, kCount).data, kept.master, 1, kCount);
    const Tensor m = bench.zeros(kept.moments, 1, kCount), v = bench.zeros(kept.moments, 1, kCount);
    bench.measure(kept.name, kept.bytes * double(kCount), [&](StreamRef s) {
      optimizer_update(s, {.hyper = {.step = 2},
                           .grad = grad,
                           .master = master,
                           .m = m,
                           .v = v,
                           .param = kept.master == DType::bf16 ? Tensor() : param,
                           .grad_factor = factor.as<float>()});
    });
  }
  bench.drop();
}

}  // namespace
}  // namespace zeno

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::atoll(argv[1]) : 16384;
  zeno::Bench bench(argc > 2 ? std::atoi(argv[2]) : 20);
  zeno::bench_copy(bench);
  // Llama-3.2-1B, Qwen2.5-0.5B, -1.5B and -7B.
  for (int64_t width : {2048, 896, 1536, 3584}) zeno::bench_norm(bench, rows, width);
  zeno::bench_rope(bench, rows, false);
  zeno::bench_rope(bench, rows, true);
  zeno::bench_activation(bench, rows);
  zeno::bench_embedding(bench, rows);
  zeno::bench_loss(bench);
  zeno::bench_scan(bench);
  zeno::bench_optimizer(bench);
  return 0;
}
