#include "zeno/kernels/norm.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/norm.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "zeno/base/math.h"
#include "zeno/kernels/cpu/simd_lanes.h"
#include "zeno/kernels/shape_checks.h"

// Both norms are one code: with kCentered the mean is taken off (LayerNorm), without it the mean is 0
// (RMSNorm).
HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

// Weights come in the dtype of the activations or in fp32.
template <class T, class F>
HWY_INLINE void dispatch_weight(const Tensor& weight, const F& f) {
  if (weight.dtype == DType::f32) return f.template operator()<float>();
  f.template operator()<T>();
}

template <class T>
HWY_INLINE void add_rows(const T* a, const T* b, T* sum, int64_t count) {
  const FloatTag d;
  for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
    store(d, hn::Add(load(d, a + i, lanes), load(d, b + i, lanes)), sum + i, lanes);
  });
}

template <class T>
HWY_INLINE float mean_of(const T* x, int64_t count) {
  const FloatTag d;
  auto sum = hn::Zero(d);
  for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR { sum = hn::Add(sum, load(d, x + i, lanes)); });
  return sum_lanes(d, sum) / float(count);
}

// Mean of (x - mean)².
template <class T>
HWY_INLINE float mean_square(const T* x, int64_t count, float mean) {
  const FloatTag d;
  auto sum = hn::Zero(d);
  const auto center = hn::Set(d, mean);
  int64_t i = 0;
  const int64_t n = int64_t(hn::Lanes(d));
  for (; i + n <= count; i += n) {
    const auto v = hn::Sub(load(d, x + i, AllLanes()), center);
    sum = hn::MulAdd(v, v, sum);
  }
  if (i < count) {
    const SomeLanes rest{size_t(count - i)};
    const auto v = hn::IfThenElseZero(hn::FirstN(d, rest.count), hn::Sub(load(d, x + i, rest), center));
    sum = hn::MulAdd(v, v, sum);
  }
  return sum_lanes(d, sum) / float(count);
}

// y = (x - mean) · rstd · weight + bias
template <class T, class W>
HWY_INLINE void normalize_into(const T* x, const W* weight, const W* bias, T* y, int64_t count, float mean,
                               float rstd) {
  const FloatTag d;
  for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto v = hn::Mul(hn::Sub(load(d, x + i, lanes), hn::Set(d, mean)), hn::Set(d, rstd));
    const auto shift = bias ? load(d, bias + i, lanes) : hn::Zero(d);
    store(d, hn::MulAdd(v, load(d, weight + i, lanes), shift), y + i, lanes);
  });
}

template <bool kCentered, class T, class W>
HWY_INLINE void forward_rows(const NormForward& op, int64_t begin, int64_t end) {
  const int64_t count = op.x.cols / op.inner;
  const W* weight = op.weight.as<W>();
  const W* bias = op.bias ? op.bias.as<W>() : nullptr;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = op.x.row<T>(r);
    if (op.residual) {
      add_rows(x, op.residual.row<T>(r), op.sum.row<T>(r), op.x.cols);
      x = op.sum.row<T>(r);  // the norm sees the rounded sum, as backward will
    }
    T* y = op.y.row<T>(r);
    for (int64_t k = 0; k < op.inner; ++k) {
      const float mean = kCentered ? mean_of(x + k * count, count) : 0;
      const float rstd = 1 / std::sqrt(mean_square(x + k * count, count, mean) + op.eps);
      op.rstd.row<float>(r)[k] = rstd;
      if (kCentered) op.mean.row<float>(r)[k] = mean;
      normalize_into(x + k * count, weight, bias, y + k * count, count, mean, rstd);
    }
  }
}

template <bool kCentered>
void norm_forward_rows(const NormForward& op, int64_t begin, int64_t end) {
  dispatch_float(op.x.dtype, [&]<class T>() HWY_ATTR {
    dispatch_weight<T>(op.weight, [&]<class W>() HWY_ATTR { forward_rows<kCentered, T, W>(op, begin, end); });
  });
}

// One vector of the backward pass. With n = (x - mean) · rstd and g = dy · weight:
// dx = rstd · (g - mean(g) - n · mean(g · n)), the middle term for LayerNorm only.
template <bool kCentered, class T, class W>
HWY_INLINE void backward_vector(const T* x, const W* weight, const T* dy, const T* dresidual, T* dx,
                                int64_t count, float mean, float rstd) {
  const FloatTag d;
  auto sum_g = hn::Zero(d), sum_gn = hn::Zero(d);
  for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto g = hn::Mul(load(d, dy + i, lanes), load(d, weight + i, lanes));
    const auto n = hn::Mul(hn::Sub(load(d, x + i, lanes), hn::Set(d, mean)), hn::Set(d, rstd));
    if constexpr (kCentered) sum_g = hn::Add(sum_g, g);
    sum_gn = hn::MulAdd(g, n, sum_gn);
  });
  const auto mean_g = hn::Set(d, sum_lanes(d, sum_g) / float(count));
  const auto mean_gn = hn::Set(d, sum_lanes(d, sum_gn) / float(count));
  for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
    auto g = hn::Mul(load(d, dy + i, lanes), load(d, weight + i, lanes));
    const auto n = hn::Mul(hn::Sub(load(d, x + i, lanes), hn::Set(d, mean)), hn::Set(d, rstd));
    if constexpr (kCentered) g = hn::Sub(g, mean_g);
    g = hn::NegMulAdd(n, mean_gn, g);
    const auto along = dresidual ? load(d, dresidual + i, lanes) : hn::Zero(d);
    store(d, hn::MulAdd(g, hn::Set(d, rstd), along), dx + i, lanes);
  });
}

template <bool kCentered, class T, class W>
HWY_INLINE void backward_rows(const NormBackward& op, int64_t begin, int64_t end) {
  const int64_t count = op.x.cols / op.inner;
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t k = 0; k < op.inner; ++k) {
      const int64_t c = k * count;
      const T* dresidual = op.dresidual ? op.dresidual.row<T>(r) + c : nullptr;
      backward_vector<kCentered>(op.x.row<T>(r) + c, op.weight.as<W>(), op.dy.row<T>(r) + c, dresidual,
                                 op.dx.row<T>(r) + c, count, kCentered ? op.mean.row<float>(r)[k] : 0,
                                 op.rstd.row<float>(r)[k]);
    }
  }
}

template <bool kCentered>
void norm_backward_rows(const NormBackward& op, int64_t begin, int64_t end) {
  dispatch_float(op.x.dtype, [&]<class T>() HWY_ATTR {
    dispatch_weight<T>(op.weight,
                       [&]<class W>() HWY_ATTR { backward_rows<kCentered, T, W>(op, begin, end); });
  });
}

// Columns summed over all rows at once, at most kSlice of them. Rows are added in blocks of 64 and the blocks
// in order, so a column's sum does not depend on how columns are cut.
constexpr int64_t kSlice = 256;
struct ColumnSums {
  HWY_ALIGN float block[kSlice] = {};
  HWY_ALIGN float total[kSlice] = {};

  HWY_INLINE void add(int64_t i, hn::Vec<FloatTag> a, hn::Vec<FloatTag> b) {
    const FloatTag d;
    hn::StoreU(hn::MulAdd(a, b, hn::LoadU(d, block + i)), d, block + i);
  }
  HWY_INLINE void close_block() {
    const FloatTag d;
    for (int64_t i = 0; i < kSlice; i += int64_t(hn::Lanes(d))) {
      hn::Store(hn::Add(hn::Load(d, total + i), hn::Load(d, block + i)), d, total + i);
      hn::Store(hn::Zero(d), d, block + i);
    }
  }
  void add_into(const Tensor& gradient, int64_t begin, int64_t count) const {
    dispatch_float(gradient.dtype, [&]<class G>() HWY_ATTR {
      const FloatTag d;
      G* out = gradient.as<G>() + begin;
      for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
        store(d, hn::Add(load(d, out + i, lanes), hn::LoadU(d, total + i)), out + i, lanes);
      });
    });
  }
};

template <bool kCentered, class T>
HWY_INLINE void sum_columns(const NormBackward& op, int64_t begin, int64_t count, ColumnSums& dweight,
                            ColumnSums& dbias) {
  const FloatTag d;
  const int64_t width = op.x.cols / op.inner;
  int64_t in_block = 0;
  for (int64_t r = 0; r < op.x.rows; ++r) {
    for (int64_t k = 0; k < op.inner; ++k) {
      const T* x = op.x.row<T>(r) + k * width + begin;
      const T* dy = op.dy.row<T>(r) + k * width + begin;
      const auto mean = hn::Set(d, kCentered ? op.mean.row<float>(r)[k] : 0);
      const auto rstd = hn::Set(d, op.rstd.row<float>(r)[k]);
      for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
        const auto g = load(d, dy + i, lanes);
        dweight.add(i, g, hn::Mul(hn::Sub(load(d, x + i, lanes), mean), rstd));
        if (kCentered) dbias.add(i, g, hn::Set(d, 1.0f));
      });
      if (++in_block < 64) continue;
      dweight.close_block();
      if (kCentered) dbias.close_block();
      in_block = 0;
    }
  }
  dweight.close_block();
  if (kCentered) dbias.close_block();
}

template <bool kCentered>
void norm_weight_columns(const NormBackward& op, int64_t begin, int64_t end) {
  ColumnSums dweight, dbias;
  dispatch_float(op.x.dtype, [&]<class T>() HWY_ATTR {
    sum_columns<kCentered, T>(op, begin, end - begin, dweight, dbias);
  });
  if (op.dweight) dweight.add_into(op.dweight, begin, end - begin);
  if (op.dbias) dbias.add_into(op.dbias, begin, end - begin);
}

void rmsnorm_forward_rows(const NormForward& op, int64_t begin, int64_t end) {
  norm_forward_rows<false>(op, begin, end);
}
void layernorm_forward_rows(const NormForward& op, int64_t begin, int64_t end) {
  norm_forward_rows<true>(op, begin, end);
}
void rmsnorm_backward_rows(const NormBackward& op, int64_t begin, int64_t end) {
  norm_backward_rows<false>(op, begin, end);
}
void layernorm_backward_rows(const NormBackward& op, int64_t begin, int64_t end) {
  norm_backward_rows<true>(op, begin, end);
}
void rmsnorm_columns(const NormBackward& op, int64_t begin, int64_t end) {
  norm_weight_columns<false>(op, begin, end);
}
void layernorm_columns(const NormBackward& op, int64_t begin, int64_t end) {
  norm_weight_columns<true>(op, begin, end);
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::cpu {

HWY_EXPORT(rmsnorm_forward_rows);
HWY_EXPORT(rmsnorm_backward_rows);
HWY_EXPORT(rmsnorm_columns);
HWY_EXPORT(layernorm_forward_rows);
HWY_EXPORT(layernorm_backward_rows);
HWY_EXPORT(layernorm_columns);

namespace {

int64_t rows_per_task(int64_t cols) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cols)); }

// Enough slices for the team, wide enough for whole cache lines.
int64_t columns_per_task(int64_t cols, int threads) {
  return std::clamp<int64_t>(round_up(div_ceil<int64_t>(cols, 2 * threads), int64_t(32)), 32, 256);
}

template <class Rows, class Op>
void launch_forward(StreamRef stream, const Op& op, bool centered, Rows rows) {
  check_shapes(op, centered);
  stream.launch([=](Workers& workers) {
    workers.for_ranges(op.x.rows, rows_per_task(op.x.cols),
                       [&](int64_t begin, int64_t end, int) { rows(op, begin, end); });
  });
}

// dx may overwrite dy, so the sums over rows come first.
template <class Rows, class Columns>
void launch_backward(StreamRef stream, const NormBackward& op, bool centered, Rows rows, Columns columns) {
  check_shapes(op, centered);
  stream.launch([=](Workers& workers) {
    const int64_t width = op.x.cols / op.inner;
    if (op.dweight || op.dbias) {
      workers.for_ranges(width, columns_per_task(width, workers.threads()),
                         [&](int64_t begin, int64_t end, int) { columns(op, begin, end); });
    }
    workers.for_ranges(op.x.rows, rows_per_task(op.x.cols),
                       [&](int64_t begin, int64_t end, int) { rows(op, begin, end); });
  });
}

}  // namespace

void rmsnorm_forward(StreamRef stream, const NormForward& op) {
  launch_forward(stream, op, false, HWY_DYNAMIC_DISPATCH(rmsnorm_forward_rows));
}
void rmsnorm_backward(StreamRef stream, const NormBackward& op) {
  launch_backward(stream, op, false, HWY_DYNAMIC_DISPATCH(rmsnorm_backward_rows),
                  HWY_DYNAMIC_DISPATCH(rmsnorm_columns));
}
void layernorm_forward(StreamRef stream, const NormForward& op) {
  launch_forward(stream, op, true, HWY_DYNAMIC_DISPATCH(layernorm_forward_rows));
}
void layernorm_backward(StreamRef stream, const NormBackward& op) {
  launch_backward(stream, op, true, HWY_DYNAMIC_DISPATCH(layernorm_backward_rows),
                  HWY_DYNAMIC_DISPATCH(layernorm_columns));
}

}  // namespace zeno::cpu
#endif  // HWY_ONCE
