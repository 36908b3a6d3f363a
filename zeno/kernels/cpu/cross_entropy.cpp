#include "zeno/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "zeno/kernels/cpu/simd_exp.h"
#include "zeno/kernels/cpu/simd_lanes.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

template <class D>
HWY_INLINE hn::Mask<D> valid_lanes(D d, AllLanes) {
  return hn::FirstN(d, hn::Lanes(d));
}
template <class D>
HWY_INLINE hn::Mask<D> valid_lanes(D d, SomeLanes some) {
  return hn::FirstN(d, some.count);
}

template <class T>
HWY_INLINE float row_max(const T* x, int64_t count) {
  const FloatTag d;
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto best = lowest;
  for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
    best = hn::Max(best, hn::IfThenElse(valid_lanes(d, lanes), load(d, x + i, lanes), lowest));
  });
  return hn::GetLane(hn::MaxOfLanes(d, best));
}

// Σ exp(x - max). Each span of 1024 is summed alone: short chains keep the fp32 error near 1e-7 for any
// vocabulary.
template <class T>
HWY_INLINE float exp_sum(const T* x, int64_t count, float max) {
  const FloatTag d;
  auto total = hn::Zero(d);
  for (int64_t begin = 0; begin < count; begin += 1024) {
    auto sum = hn::Zero(d);
    for_lanes(d, std::min<int64_t>(1024, count - begin), [&](int64_t i, auto lanes) HWY_ATTR {
      const auto e = exp_lanes(d, hn::Sub(load(d, x + begin + i, lanes), hn::Set(d, max)));
      sum = hn::Add(sum, hn::IfThenElseZero(valid_lanes(d, lanes), e));
    });
    total = hn::Add(total, sum);
  }
  return sum_lanes(d, total);
}

template <class T>
HWY_INLINE void write_gradient(T* x, int64_t count, float max, float sum, int32_t target, float scale) {
  const FloatTag d;
  // The target's own gradient, p - 1, before its logit is overwritten.
  const float p = hn::GetLane(exp_lanes(d, hn::Set(d, float(x[target]) - max))) / sum;
  const auto factor = hn::Set(d, scale / sum);
  for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto e = exp_lanes(d, hn::Sub(load(d, x + i, lanes), hn::Set(d, max)));
    store(d, hn::Mul(e, factor), x + i, lanes);
  });
  x[target] = T((p - 1) * scale);
}

// Whether x[target] is the maximum and nothing before it is.
template <class T>
HWY_INLINE bool first_max(const T* x, int32_t target, float max) {
  if (float(x[target]) != max) return false;
  const FloatTag d;
  bool found = false;
  for_lanes(d, target, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto equal = hn::Eq(load(d, x + i, lanes), hn::Set(d, max));
    found |= !hn::AllFalse(d, hn::And(equal, valid_lanes(d, lanes)));
  });
  return !found;
}

void cross_entropy_rows(const CrossEntropy& op, int64_t begin, int64_t end) {
  dispatch_float(op.logits.dtype, [&]<class T>() HWY_ATTR {
    const int64_t count = op.logits.cols;
    for (int64_t r = begin; r < end; ++r) {
      T* x = op.logits.row<T>(r);
      const int32_t target = op.targets.as<int32_t>()[r];
      ensure(target >= 0 && target < count, "[cross_entropy] target of row {}: got {}, expected 0..{}", r,
             target, count - 1);
      const float max = row_max(x, count);
      const float sum = exp_sum(x, count, max);
      if (op.hits) op.hits.as<int32_t>()[r] = first_max(x, target, max);
      op.losses.as<float>()[r] = float(std::log(double(sum)) + (double(max) - double(float(x[target]))));
      if (op.grad_scale != 0) write_gradient(x, count, max, sum, target, op.grad_scale);
    }
  });
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::cpu {

HWY_EXPORT(cross_entropy_rows);

void cross_entropy(StreamRef stream, const CrossEntropy& op) {
  const int64_t rows = op.logits.rows;
  ensure(op.targets.count() == rows, "[cross_entropy] targets: got {}, expected {}", op.targets.count(),
         rows);
  ensure(op.losses.count() == rows, "[cross_entropy] losses: got {}, expected {}", op.losses.count(), rows);
  ensure(!op.hits || op.hits.count() == rows, "[cross_entropy] hits: got {}, expected {}", op.hits.count(),
         rows);
  stream.launch([=](Workers& workers) {
    const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, op.logits.cols));
    workers.for_ranges(rows, grain, [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(cross_entropy_rows)(op, begin, end);
    });
  });
}

namespace {

// Copies row a(i) of src to row b(i) of dst for every index.
template <class RowOfSrc, class RowOfDst>
void copy_rows(StreamRef stream, const char* name, Tensor src, Tensor index, Tensor dst, RowOfSrc src_row,
               RowOfDst dst_row) {
  ensure(src.cols == dst.cols && src.dtype == dst.dtype, "[{}] dst: got {} columns of {}, expected {} of {}",
         name, dst.cols, name_of(dst.dtype), src.cols, name_of(src.dtype));
  stream.launch([=](Workers& workers) {
    const size_t width = size_of(src.dtype);
    const int32_t* rows = index.as<int32_t>();
    const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, src.cols));
    workers.for_ranges(index.count(), grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t from = src_row(i, rows[i]), to = dst_row(i, rows[i]);
        ensure(from >= 0 && from < src.rows && to >= 0 && to < dst.rows,
               "[{}] index {}: got row {}, expected less than {} of src and {} of dst", name, i, rows[i],
               src.rows, dst.rows);
        std::memcpy(dst.data + size_t(to * dst.stride) * width, src.data + size_t(from * src.stride) * width,
                    size_t(src.cols) * width);
      }
    });
  });
}

}  // namespace

void gather_rows(StreamRef stream, Tensor src, Tensor index, Tensor dst) {
  ensure(index.count() == dst.rows, "[gather_rows] index: got {}, expected {}", index.count(), dst.rows);
  copy_rows(
      stream, "gather_rows", src, index, dst, [](int64_t, int32_t row) { return int64_t(row); },
      [](int64_t i, int32_t) { return i; });
}

void scatter_rows(StreamRef stream, Tensor src, Tensor index, Tensor dst) {
  ensure(index.count() == src.rows, "[scatter_rows] index: got {}, expected {}", index.count(), src.rows);
  copy_rows(
      stream, "scatter_rows", src, index, dst, [](int64_t i, int32_t) { return i; },
      [](int64_t, int32_t row) { return int64_t(row); });
}

}  // namespace zeno::cpu
#endif  // HWY_ONCE
