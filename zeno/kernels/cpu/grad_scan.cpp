#include "zeno/kernels/grad_scan.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/grad_scan.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "zeno/kernels/cpu/simd_lanes.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

// Sum of squares of one block. Element i goes to sum i % 8 in double (a square of a float is exact there) and
// the eight sums are joined pairwise: the same bits on every CPU, whatever its vector width.
template <class T>
HWY_INLINE double block_squares(const T* x) {
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> df;
  const size_t n = hn::Lanes(d);
  HWY_ALIGN double sums[8];
  for (size_t lane = 0; lane < 8; lane += n) {
    auto sum = hn::Zero(d);
    for (size_t i = lane; i < size_t(kNormBlock); i += 8) {
      const auto v = hn::PromoteTo(d, load(df, x + i, AllLanes()));
      sum = hn::MulAdd(v, v, sum);
    }
    hn::Store(sum, d, sums + lane);
  }
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// A block that holds inf or NaN: count them and take the rest.
template <class T>
double careful_squares(const T* x, uint64_t place, GradScan* result) {
  float clean[kNormBlock];
  for (int64_t i = 0; i < kNormBlock; ++i) {
    clean[i] = float(x[i]);
    if (std::isfinite(clean[i])) continue;
    clean[i] = 0;
    ++result->nonfinite;
    result->first_bad = std::max(result->first_bad, ~(place + uint64_t(i)));
  }
  return block_squares(clean);
}

template <class T>
HWY_INLINE void scan_block(const T* x, uint64_t place, GradScan* result) {
  double sum = block_squares(x);
  if (!std::isfinite(sum)) [[unlikely]]
    sum = careful_squares(x, place, result);
  result->squares.add(sum);
}

void scan_range(const Tensor& grad, int64_t begin, int64_t end, uint64_t place, GradScan* result) {
  dispatch_float(grad.dtype, [&]<class T>() HWY_ATTR {
    const T* x = grad.as<T>();
    int64_t i = begin;
    for (; i + kNormBlock <= end; i += kNormBlock) {
      // The sums keep the core busy enough that the hardware's own prefetch comes late: 7 GB/s becomes 11.
      const auto* ahead = reinterpret_cast<const std::byte*>(x + i) + 2048;
      for (size_t line = 0; line < kNormBlock * sizeof(T); line += 64) hwy::Prefetch(ahead + line);
      scan_block(x + i, place + uint64_t(i), result);
    }
    if (i == end) return;
    T rest[kNormBlock] = {};
    std::copy(x + i, x + end, rest);
    scan_block(rest, place + uint64_t(i), result);
  });
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::cpu {

HWY_EXPORT(scan_range);

void grad_scan(StreamRef stream, Tensor grad, GradScan* result, uint64_t place) {
  ensure(grad.contiguous(), "[grad_scan] got stride {} for {} columns, expected a flat tensor", grad.stride,
         grad.cols);
  stream.launch([=](Workers& workers) {
    constexpr int64_t kGrain = 1024 * kNormBlock;
    std::mutex mutex;  // exact sums may be merged in any order
    workers.for_ranges(grad.count(), kGrain, [&](int64_t begin, int64_t end, int) {
      GradScan part;
      HWY_DYNAMIC_DISPATCH(scan_range)(grad, begin, end, place, &part);
      const std::scoped_lock lock(mutex);
      result->squares.add(part.squares);
      result->nonfinite += part.nonfinite;
      result->first_bad = std::max(result->first_bad, part.first_bad);
    });
  });
}

void sum_exactly(StreamRef stream, Tensor values, ExactSum* sum) {
  ensure(values.contiguous(), "[sum_exactly] got stride {} for {} columns, expected a flat tensor",
         values.stride, values.cols);
  stream.launch([=](Workers&) {
    const float* x = values.as<float>();
    for (int64_t i = 0; i < values.count(); ++i) sum->add(double(x[i]));
  });
}

}  // namespace zeno::cpu
#endif  // HWY_ONCE
