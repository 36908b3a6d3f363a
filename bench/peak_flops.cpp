#include "bench/peak_flops.h"

#include <algorithm>
#include <chrono>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/peak_flops.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns the number of FLOPs done; `sink` keeps them from being optimised away.
double multiply_add_loop(float* sink) {
  constexpr int kChains = 12, kSteps = 200000;
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = hn::Set(d, float(i));
  const auto a = hn::Set(d, *sink), b = hn::Set(d, 0.5f);
  for (int step = 0; step < kSteps; ++step) {
    HWY_UNROLL(12)
    for (int i = 0; i < kChains; ++i) sums[i] = hn::MulAdd(sums[i], b, a);
  }
  for (int i = 1; i < kChains; ++i) sums[0] = hn::Add(sums[0], sums[i]);
  *sink = hn::GetLane(hn::SumOfLanes(d, sums[0]));
  return 2.0 * kChains * kSteps * double(hn::Lanes(d));
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno {
HWY_EXPORT(multiply_add_loop);

double measure_peak_flops() {
  volatile float start = 0.25f;
  double best = 0;
  for (int run = 0; run < 20; ++run) {
    float sink = start;
    const auto begin = std::chrono::steady_clock::now();
    const double flops = HWY_DYNAMIC_DISPATCH(multiply_add_loop)(&sink);
    start = sink;
    best = std::max(best,
                    flops / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace zeno
#endif
