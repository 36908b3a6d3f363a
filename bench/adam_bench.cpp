// Memory-bound kernels against the machine's stream limit, measured in the same run: AdamW (fp32 states, fp32
// gradient, bf16 copy), grad_scan and cast on 1 and 2 threads. --torch-ms N: what PyTorch needed for the same
// AdamW step, measured by the caller. --elements N: elements per array.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/adam_bench.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "tests/support/kernel_stream.h"
#include "zeno/device/buffer.h"
#include "zeno/kernels/elementwise.h"
#include "zeno/kernels/grad_scan.h"
#include "zeno/kernels/optimizer.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// a = b + s · c with streaming stores: the usual measure of memory bandwidth.
void triad(float* a, const float* b, const float* c, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto s = hn::Set(d, 3.0f);
  for (int64_t i = 0; i < count; i += int64_t(hn::Lanes(d))) {
    hn::Stream(hn::MulAdd(hn::Load(d, c + i), s, hn::Load(d, b + i)), d, a + i);
  }
  hwy::FlushStream();
}

void copy(float* a, const float* b, int64_t count) {
  const hn::ScalableTag<float> d;
  for (int64_t i = 0; i < count; i += int64_t(hn::Lanes(d))) hn::Stream(hn::Load(d, b + i), d, a + i);
  hwy::FlushStream();
}

float read(const float* a, int64_t count) {
  const hn::ScalableTag<float> d;
  const int64_t n = int64_t(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (int64_t i = 0; i < count; i += 4 * n) {
    s0 = hn::Add(s0, hn::Load(d, a + i));
    s1 = hn::Add(s1, hn::Load(d, a + i + n));
    s2 = hn::Add(s2, hn::Load(d, a + i + 2 * n));
    s3 = hn::Add(s3, hn::Load(d, a + i + 3 * n));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno {

HWY_EXPORT(triad);
HWY_EXPORT(copy);
HWY_EXPORT(read);

namespace {

constexpr int64_t kGrain = 1 << 16;

// Arrays of one AdamW shard in huge pages, first touched here.
struct Arrays {
  explicit Arrays(int64_t n) : count(n) {
    ledger.book(Tier::device, Purpose::moments, size_t(n) * 4 * 4 + size_t(n) * 2);
    for (Buffer& buffer : states) buffer = Buffer(ledger, Tier::device, Purpose::moments, size_t(n) * 4);
    param = Buffer(ledger, Tier::device, Purpose::moments, size_t(n) * 2);
    for (int64_t i = 0; i < n; ++i) {
      for (int k = 0; k < 4; ++k) state(k)[i] = 0.001f * float(1 + (i + k) % 97);
    }
    std::memset(param.data(), 0, param.bytes());
  }
  float* state(int k) { return reinterpret_cast<float*>(states[k].data()); }
  Tensor tensor(int k) { return {state(k), DType::f32, 1, count}; }
  Tensor copy() { return {param.data(), DType::bf16, 1, count}; }

  int64_t count;
  Ledger ledger;
  Buffer states[4], param;
};

// Median GB/s of a few runs.
double gigabytes_per_s(double bytes, const std::function<void()>& run) {
  std::vector<double> seconds;
  for (int i = 0; i < 6; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(seconds.begin() + 1, seconds.end());  // the first run warms up
  return bytes / seconds[3] * 1e-9;
}

void print(const char* name, double rate, double limit, const char* limit_name) {
  fmt::print("  {:<28}{:8.1f} GB/s   {:.2f} of {}\n", name, rate, rate / limit, limit_name);
}

void bench_threads(Arrays& a, int threads, double torch_ms) {
  const double n = double(a.count);
  Workers workers(threads);
  float sink = 0;
  const double triad = gigabytes_per_s(12 * n, [&] {
    workers.for_ranges(a.count, kGrain, [&](int64_t b, int64_t e, int) {
      HWY_DYNAMIC_DISPATCH(triad)(a.state(0) + b, a.state(1) + b, a.state(2) + b, e - b);
    });
  });
  const double copied = gigabytes_per_s(8 * n, [&] {
    workers.for_ranges(a.count, kGrain, [&](int64_t b, int64_t e, int) {
      HWY_DYNAMIC_DISPATCH(copy)(a.state(0) + b, a.state(1) + b, e - b);
    });
  });
  const double read = gigabytes_per_s(4 * n, [&] {
    workers.for_ranges(a.count, kGrain, [&](int64_t b, int64_t e, int thread) {
      const float sum = HWY_DYNAMIC_DISPATCH(read)(a.state(1) + b, e - b);
      if (thread == 0) sink += sum;
    });
  });
  fmt::print("{} thread{}: NT triad {:.1f}, NT copy {:.1f}, read {:.1f} GB/s{}\n", threads,
             threads > 1 ? "s" : "", triad, copied, read, sink == 0.5f ? " " : "");

  KernelStream stream(threads);
  const float factor = 1;
  OptimizerUpdate update{.hyper = {.weight_decay = 0.1},
                         .grad = a.tensor(0),
                         .master = a.tensor(1),
                         .m = a.tensor(2),
                         .v = a.tensor(3),
                         .param = a.copy(),
                         .grad_factor = &factor};
  const double adam = gigabytes_per_s(30 * n, [&] {
    optimizer_update(stream.ref(), update);
    stream.sync();
  });
  print("AdamW, 30 B/element", adam, triad, "triad");
  if (torch_ms > 0) {
    fmt::print("  {:<28}{:8.1f} GB/s   we are {:.2f} times as fast\n", "AdamW, PyTorch",
               30 * n / torch_ms * 1e-6, adam / (30 * n / torch_ms * 1e-6));
  }
  GradScan scan;
  print("grad_scan, 4 B/element",
        gigabytes_per_s(4 * n,
                        [&] {
                          grad_scan(stream.ref(), a.tensor(1), &scan);
                          stream.sync();
                        }),
        read, "read");
  print("cast to bf16, 6 B/element",
        gigabytes_per_s(6 * n,
                        [&] {
                          cast(stream.ref(), a.tensor(1), a.copy());
                          stream.sync();
                        }),
        copied, "copy");
}

}  // namespace
}  // namespace zeno

int main(int argc, char** argv) {
  double torch_ms = 0;
  int64_t elements = 48 << 20;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--torch-ms") torch_ms = std::atof(argv[i + 1]);
    if (std::string(argv[i]) == "--elements")
      elements = zeno::round_up(int64_t(std::atoll(argv[i + 1])), int64_t(1024));
  }
  zeno::Arrays arrays(elements);
  for (int threads : {1, 2}) zeno::bench_threads(arrays, threads, torch_ms);
}
#endif  // HWY_ONCE
