// Memory-bound kernels against the machine's stream limit, measured in the same run: AdamW with states of
// several types, grad_scan and cast on 1 and 2 threads. The limit of an update is the best of copy, triad and
// a loop that reads and writes the same bytes in the same order and computes nothing. --torch-ms N: what
// PyTorch needed for the AdamW step with fp32 states and gradients, measured by the caller. --elements N:
// elements per array.
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
#include "zeno/base/rng.h"
#include "zeno/device/buffer.h"
#include "zeno/kernels/elementwise.h"
#include "zeno/kernels/grad_scan.h"
#include "zeno/kernels/moment_cells.h"
#include "zeno/kernels/optimizer.h"

#ifndef ZENO_BENCH_ADAM_BENCH_ONCE_
#define ZENO_BENCH_ADAM_BENCH_ONCE_
namespace zeno {

constexpr int64_t kSlice = 1024;  // elements; whole vectors in every type

// An array of an update, seen as floats.
struct Moved {
  float* data = nullptr;
  double bytes = 0;  // per element

  template <class F>
  void slice(int64_t at, F body) const {
    body(data + int64_t(double(at) * bytes / 4), int64_t(double(kSlice) * bytes / 4));
  }
};
struct Traffic {
  Moved grad, states[3], param;
  double bytes() const {
    double sum = grad.bytes + param.bytes;
    for (const Moved& state : states) sum += 2 * state.bytes;
    return sum;
  }
};

}  // namespace zeno
#endif

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

// What an update moves for elements [begin, end): one array read, up to three changed in place, one written
// past the cache.
void moved(const Traffic& t, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const int64_t n = int64_t(hn::Lanes(d));
  for (int64_t at = begin; at < end; at += kSlice) {
    auto sum = hn::Zero(d);
    t.grad.slice(at, [&](float* p, int64_t count) HWY_ATTR {
      for (int64_t i = 0; i < count; i += n) sum = hn::Add(sum, hn::Load(d, p + i));
    });
    for (const Moved& state : t.states) {
      state.slice(at, [&](float* p, int64_t count) HWY_ATTR {
        for (int64_t i = 0; i < count; i += n) hn::Store(hn::Max(hn::Load(d, p + i), sum), d, p + i);
      });
    }
    t.param.slice(at, [&](float* p, int64_t count) HWY_ATTR {
      for (int64_t i = 0; i < count; i += n) hn::Stream(sum, d, p + i);
    });
  }
  hwy::FlushStream();
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno {

HWY_EXPORT(triad);
HWY_EXPORT(copy);
HWY_EXPORT(read);
HWY_EXPORT(moved);

namespace {

constexpr int64_t kGrain = 1 << 16;

// Arrays of one AdamW shard in huge pages, first touched here.
struct Arrays {
  explicit Arrays(int64_t n) : count(n) {
    ledger.book(Tier::device, Purpose::moments, size_t(n) * 4 * 4 + size_t(n) * 2);
    for (Buffer& buffer : states) buffer = Buffer(ledger, Tier::device, Purpose::moments, size_t(n) * 4);
    param = Buffer(ledger, Tier::device, Purpose::moments, size_t(n) * 2);
    std::memset(param.data(), 0, param.bytes());
    reset();
  }
  // Gradients, and states that could follow from them.
  void reset() {
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t bits = mix64(uint64_t(i));  // three numbers of 21 bits, whose sum is near to normal
      const int64_t sum = int64_t(bits >> 43) + int64_t(bits >> 22 & 0x1fffff) + int64_t(bits & 0x1fffff);
      const float g = 1e-8f * float(sum - (3 << 20));
      state(0)[i] = g;
      state(1)[i] = 10 * g;
      state(2)[i] = g;
      state(3)[i] = g * g;
    }
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

// Masters in i16 are what the copy leaves of them (master_rest.h).
struct Setting {
  const char* name;
  DType grad, master, m, v;
  bool param;  // a bf16 copy
};
constexpr Setting kSettings[] = {
    {"fp32 states, fp32 gradient", DType::f32, DType::f32, DType::f32, DType::f32, true},
    {"fp32 states", DType::bf16, DType::f32, DType::f32, DType::f32, true},
    {"fp32 states, split masters", DType::bf16, DType::i16, DType::f32, DType::f32, true},
    {"bf16 moments", DType::bf16, DType::f32, DType::bf16, DType::bf16, true},
    {"8-bit moments", DType::bf16, DType::f32, DType::u8, DType::u8, true},
    {"8-bit moments, split masters", DType::bf16, DType::i16, DType::u8, DType::u8, true},
    {"bf16 masters and moments", DType::bf16, DType::bf16, DType::bf16, DType::bf16, false},
    {"bf16 masters, 8-bit moments", DType::bf16, DType::bf16, DType::u8, DType::u8, false},
};

double bytes_of(DType dtype) {
  return dtype == DType::u8 ? double(moment_bytes(kMomentCell)) / kMomentCell : double(size_of(dtype));
}

void bench_update(Arrays& a, const Setting& s, Workers& workers, KernelStream& stream, double stream_rate,
                  double torch_ms) {
  const double n = double(a.count);
  const bool split = s.master == DType::i16;
  const double master = split ? 4 : bytes_of(s.master);  // with the copy, which is read too
  const Traffic traffic{
      .grad = {a.state(0), bytes_of(s.grad)},
      .states = {{a.state(1), master}, {a.state(2), bytes_of(s.m)}, {a.state(3), bytes_of(s.v)}},
      .param = {reinterpret_cast<float*>(a.param.data()), s.param && !split ? 2.0 : 0.0}};
  const double bytes = traffic.bytes() * n;
  const auto move = [&] {
    workers.for_ranges(a.count, 16 * kSlice, [&](int64_t b, int64_t e, int) {
      HWY_DYNAMIC_DISPATCH(moved)(traffic, b, e);
    });
  };
  a.reset();
  double limit = gigabytes_per_s(bytes, move);
  // Zero bytes are zeros in every type of state.
  for (int k : {1, 2, 3}) std::memset(a.state(k), 0, a.states[k].bytes());
  if (s.grad == DType::bf16) {
    cast(stream.ref(), a.tensor(0), a.copy());
    stream.sync();
    std::memcpy(a.state(0), a.param.data(), a.param.bytes());
  }
  const float factor = 1;
  // Far enough into a run with this beta2 for the bias correction to be over.
  OptimizerUpdate update{.hyper = {.beta2 = 0.95, .weight_decay = 0.1, .step = 1000},
                         .grad = {a.state(0), s.grad, 1, a.count},
                         .master = {a.state(1), s.master, 1, a.count},
                         .m = {a.state(2), s.m, 1, a.count},
                         .v = {a.state(3), s.v, 1, a.count},
                         .param = s.param ? a.copy() : Tensor(),
                         .grad_factor = &factor};
  const double adam = gigabytes_per_s(bytes, [&] {
    optimizer_update(stream.ref(), update);
    stream.sync();
    ++update.hyper.step;
  });
  // Others may use this machine too: the best of what was seen.
  limit = std::max({limit, gigabytes_per_s(bytes, move), stream_rate});
  fmt::print("  AdamW, {:<30}{:6.2f} B/element {:7.1f} GB/s   {:.2f} of {:.1f}   {:6.0f} M/s\n", s.name,
             traffic.bytes(), adam, adam / limit, limit, adam * 1e3 / traffic.bytes());
  if (torch_ms > 0 && s.grad == DType::f32) {
    fmt::print("  {:<37}{:23.1f} GB/s   we are {:.2f} times as fast\n", "AdamW, PyTorch",
               bytes / torch_ms * 1e-6, adam / (bytes / torch_ms * 1e-6));
  }
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
  for (const Setting& setting : kSettings)
    bench_update(a, setting, workers, stream, std::max(triad, copied), torch_ms);
  a.reset();
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
      elements = zeno::round_up(int64_t(std::atoll(argv[i + 1])), zeno::kSlice);
  }
  zeno::Arrays arrays(elements);
  for (int threads : {1, 2}) zeno::bench_threads(arrays, threads, torch_ms);
}
#endif  // HWY_ONCE
