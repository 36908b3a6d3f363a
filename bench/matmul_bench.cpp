// Matrix products of a transformer step: ours against oneDNN and OpenBLAS (loaded at run time when installed)
// and against the peak of the CPU; then attention. All contestants of a row run interleaved; figures are
// medians.
//   matmul_bench [rows = 1024] [runs = 3]
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/peak_flops.h"
#include "tests/support/kernel_stream.h"
#include "zeno/kernels/attention.h"

namespace zeno {
namespace {

struct Problem {
  int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
  double flops() const { return 2.0 * double(m) * double(n) * double(k); }
};

// Memory in huge pages, filled with numbers in (-1, 1), as fp32 and bf16.
struct Data {
  float* wide;
  BF16* narrow;

  explicit Data(int64_t count) : wide(allocate<float>(count)), narrow(allocate<BF16>(count)) {
    uint32_t state = 1;
    for (int64_t i = 0; i < count; ++i) {
      state = state * 1664525u + 1013904223u;
      wide[i] = float(state >> 8) / float(1 << 23) - 1;
      narrow[i] = BF16(wide[i]);
    }
  }
  ~Data() {
    std::free(wide);
    std::free(narrow);
  }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;

  Tensor view(DType dtype, int64_t rows, int64_t cols) const {
    return dtype == DType::f32 ? Tensor(wide, dtype, rows, cols) : Tensor(narrow, dtype, rows, cols);
  }

 private:
  template <class T>
  static T* allocate(int64_t count) {
    const size_t page = size_t(2) << 20, bytes = round_up(size_t(count) * sizeof(T), page);
    void* memory = std::aligned_alloc(page, bytes);
    madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
};

// A library that multiplies fp32 row-major matrices; empty when it is not installed.
using Peer = std::function<void(const Problem&, const Data& a, const Data& b, const Data& c)>;

Peer load_onednn(int threads) {
  using Sgemm = int (*)(char, char, int64_t, int64_t, int64_t, float, const float*, int64_t, const float*,
                        int64_t, float, float*, int64_t);
  void* library = nullptr;
  for (const char* name : {"libdnnl.so.2", "libdnnl.so.3", "libdnnl.so"}) {
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  }
  if (!library) return {};
  const auto sgemm = reinterpret_cast<Sgemm>(dlsym(library, "dnnl_sgemm"));
  const auto set_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "omp_set_num_threads"));
  if (!sgemm || !set_threads) return {};
  return [=](const Problem& p, const Data& a, const Data& b, const Data& c) {
    set_threads(threads);
    sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, 1, a.wide,
          p.transpose_a ? p.m : p.k, b.wide, p.transpose_b ? p.k : p.n, p.accumulate ? 1 : 0, c.wide, p.n);
  };
}

Peer load_openblas(int threads) {
  using Sgemm =
      void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
  // Releases older than the CPU take a slow fallback; name the kernels it can run.
  if (__builtin_cpu_supports("avx512f")) setenv("OPENBLAS_CORETYPE", "SKYLAKEX", 0);
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!library) return {};
  const auto sgemm = reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
  const auto set_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"));
  if (!sgemm || !set_threads) return {};
  return [=](const Problem& p, const Data& a, const Data& b, const Data& c) {
    constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;
    set_threads(threads);
    sgemm(kRowMajor, p.transpose_a ? kTransposed : kPlain, p.transpose_b ? kTransposed : kPlain, int(p.m),
          int(p.n), int(p.k), 1, a.wide, int(p.transpose_a ? p.m : p.k), b.wide,
          int(p.transpose_b ? p.k : p.n), p.accumulate ? 1 : 0, c.wide, int(p.n));
  };
}

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + long(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Median time of each contestant, all run in turn; the first round warms up.
std::vector<double> compete(const std::vector<std::function<void()>>& contestants, int runs) {
  std::vector<std::vector<double>> times(contestants.size());
  for (int run = 0; run <= runs; ++run) {
    for (size_t i = 0; i < contestants.size(); ++i) {
      const double time = contestants[i] ? seconds(contestants[i]) : NAN;
      if (run > 0) times[i].push_back(time);
    }
  }
  std::vector<double> medians;
  for (auto& list : times) medians.push_back(median(std::move(list)));
  return medians;
}

class Bench {
 public:
  Bench(int threads, int runs)
      : threads_(threads),
        runs_(runs),
        stream_(threads),
        onednn_(load_onednn(threads)),
        openblas_(load_openblas(threads)),
        peak_(measure_peak_flops() * threads) {}

  void print_header() const {
    std::printf("\n%d thread(s), GFLOP/s; peak of the multiply-add units %.0f\n", threads_, peak_ * 1e-9);
    std::printf("%6s %6s %6s  %-4s %8s %8s %8s %8s | %8s %8s\n", "M", "K", "N", "form", "fp32", "bf16",
                "oneDNN", "OpenBLAS", "/oneDNN", "/peak");
  }

  void multiply(const char* form, const Problem& p) {
    const Data a(p.m * p.k), b(p.k * p.n), c(p.m * p.n);
    const auto ours = [&](DType dtype) {
      Matmul op{.transpose_a = p.transpose_a, .transpose_b = p.transpose_b, .accumulate = p.accumulate};
      op.a = p.transpose_a ? a.view(dtype, p.k, p.m) : a.view(dtype, p.m, p.k);
      op.b = p.transpose_b ? b.view(dtype, p.n, p.k) : b.view(dtype, p.k, p.n);
      op.c = c.view(p.accumulate ? DType::f32 : dtype, p.m, p.n);
      return [this, op] {
        matmul(stream_.ref(), op);
        stream_.sync();
      };
    };
    const auto peer = [&](const Peer& call) {
      return call ? std::function<void()>([&] { call(p, a, b, c); }) : std::function<void()>();
    };
    const auto times = compete({ours(DType::f32), ours(DType::bf16), peer(onednn_), peer(openblas_)}, runs_);
    for (size_t i = 0; i < times.size(); ++i) {
      total_time_[i] += times[i] / p.flops();
    }
    ++count_;
    const auto rate = [&](size_t i) { return p.flops() / times[i] * 1e-9; };
    std::printf("%6ld %6ld %6ld  %-4s %8.1f %8.1f %8.1f %8.1f | %8.3f %8.3f\n", p.m, p.k, p.n, form, rate(0),
                rate(1), rate(2), rate(3), times[2] / times[0], p.flops() / times[0] / peak_);
    std::fflush(stdout);
  }

  void print_total() const {
    const auto rate = [&](size_t i) { return count_ / total_time_[i] * 1e-9; };
    std::printf("%-26s %8.1f %8.1f %8.1f %8.1f | %8.3f %8.3f\n", "harmonic mean", rate(0), rate(1), rate(2),
                rate(3), rate(0) / rate(2), rate(0) * 1e9 / peak_);
  }

  // Forward and backward, counting only the scores that the causal mask keeps.
  void attend(DType dtype) {
    const AttentionShape s{
        .batch = 4, .seq = 1024, .heads = 12, .kv_heads = 12, .head_dim = 64, .scale = 0.125f};
    const int64_t tokens = s.batch * s.seq, width = s.heads * s.head_dim;
    const Data qkv(tokens * 3 * width), out(tokens * width), dout(tokens * width), dqkv(tokens * 3 * width);
    const Data lse(s.batch * s.heads * s.seq),
        workspace(int64_t(attention_backward_workspace(Device::Kind::cpu, s, DType::f32) / 4 + 1));
    const Tensor lse_view = lse.view(DType::f32, s.batch * s.heads, s.seq);
    const auto forward = [&] {
      attention_forward(stream_.ref(), {.shape = s,
                                        .qkv = qkv.view(dtype, tokens, 3 * width),
                                        .out = out.view(dtype, tokens, width),
                                        .lse = lse_view});
      stream_.sync();
    };
    const auto backward = [&] {
      attention_backward(
          stream_.ref(),
          {.shape = s,
           .qkv = qkv.view(dtype, tokens, 3 * width),
           .out = out.view(dtype, tokens, width),
           .lse = lse_view,
           .dout = dout.view(dtype, tokens, width),
           .dqkv = dqkv.view(dtype, tokens, 3 * width),
           .workspace = Tensor(workspace.wide, DType::u8, 1,
                               int64_t(attention_backward_workspace(Device::Kind::cpu, s, DType::f32)))});
      stream_.sync();
    };
    const auto times = compete({forward, backward}, runs_);
    const double scores = double(s.batch * s.heads) * double(s.seq) * double(s.seq + 1) / 2;
    const double flops = 4 * scores * double(s.head_dim), total = 3.5 * flops / (times[0] + times[1]);
    const double matmul_rate = count_ / total_time_[0];
    std::printf(
        "attention %s B 4 H 12 T 1024 D 64: forward %.1f, backward %.1f, together %.1f = %.2f of our fp32 "
        "matmul\n",
        std::string(name_of(dtype)).c_str(), flops / times[0] * 1e-9, 2.5 * flops / times[1] * 1e-9,
        total * 1e-9, total / matmul_rate);
  }

 private:
  const int threads_, runs_;
  KernelStream stream_;
  const Peer onednn_, openblas_;
  const double peak_;
  double total_time_[4] = {};  // seconds per FLOP, summed over problems
  int count_ = 0;
};

void run(int threads, int64_t rows, int runs) {
  Bench bench(threads, runs);
  bench.print_header();
  struct Layer {
    int64_t m, in, out;
  };
  for (const Layer& l :
       {Layer{rows, 768, 768}, {rows, 768, 2304}, {rows, 768, 3072}, {rows, 3072, 768}, {512, 768, 50257}}) {
    bench.multiply(
        "Y",
        {.m = l.m, .n = l.out, .k = l.in, .transpose_a = false, .transpose_b = true, .accumulate = false});
    bench.multiply(
        "dX",
        {.m = l.m, .n = l.in, .k = l.out, .transpose_a = false, .transpose_b = false, .accumulate = false});
    bench.multiply(
        "dW",
        {.m = l.out, .n = l.in, .k = l.m, .transpose_a = true, .transpose_b = false, .accumulate = true});
  }
  bench.print_total();
  bench.attend(DType::f32);
  bench.attend(DType::bf16);
}

}  // namespace
}  // namespace zeno

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::atol(argv[1]) : 1024;
  const int runs = argc > 2 ? std::atoi(argv[2]) : 3;
  for (int threads : {1, 2}) zeno::run(threads, rows, runs);
  return 0;
}
