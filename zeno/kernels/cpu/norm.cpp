#include "zeno/kernels/norm.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/norm.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "zeno/base/math.h"
#include "zeno/kernels/cpu/norm_vector.h"
#include "zeno/kernels/shape_checks.h"

// Both norms are one code, see norm_vector.h.
HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

template <class T>
HWY_INLINE void add_rows(const T* a, const T* b, T* sum, int64_t count) {
  const FloatTag d;
  for_lanes(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
    store(d, hn::Add(load(d, a + i, lanes), load(d, b + i, lanes)), sum + i, lanes);
  });
}

template <bool kCentered, class T, class W>
HWY_INLINE void forward_rows(const NormForward& op, int64_t begin, int64_t end) {
  const int64_t count = op.x.cols;
  const W* weight = op.weight.as<W>();
  const W* bias = op.bias ? op.bias.as<W>() : nullptr;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = op.x.row<T>(r);
    if (op.residual) {
      add_rows(x, op.residual.row<T>(r), op.sum.row<T>(r), count);
      x = op.sum.row<T>(r);  // the norm sees the rounded sum, as backward will
    }
    const float mean = kCentered ? mean_of(x, count) : 0;
    const float rstd = 1 / std::sqrt(mean_square(x, count, mean) + op.eps);
    *op.rstd.row<float>(r) = rstd;
    if (kCentered) *op.mean.row<float>(r) = mean;
    normalize_into(x, weight, bias, op.y.row<T>(r), count, mean, rstd);
  }
}

template <bool kCentered>
void norm_forward_rows(const NormForward& op, int64_t begin, int64_t end) {
  dispatch_float(op.x.dtype, [&]<class T>() HWY_ATTR {
    dispatch_weight<T>(op.weight, [&]<class W>() HWY_ATTR { forward_rows<kCentered, T, W>(op, begin, end); });
  });
}

template <bool kCentered, class T, class W>
HWY_INLINE void backward_rows(const NormBackward& op, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    backward_vector<kCentered>(op.x.row<T>(r), op.weight.as<W>(), op.dy.row<T>(r),
                               op.dresidual ? op.dresidual.row<T>(r) : nullptr, op.dx.row<T>(r), op.x.cols,
                               kCentered ? *op.mean.row<float>(r) : 0, *op.rstd.row<float>(r));
  }
}

template <bool kCentered>
void norm_backward_rows(const NormBackward& op, int64_t begin, int64_t end) {
  dispatch_float(op.x.dtype, [&]<class T>() HWY_ATTR {
    dispatch_weight<T>(op.weight,
                       [&]<class W>() HWY_ATTR { backward_rows<kCentered, T, W>(op, begin, end); });
  });
}

template <bool kCentered>
void norm_weight_columns(const NormBackward& op, int64_t begin, int64_t end) {
  ColumnSums<kCentered> sums;
  dispatch_float(op.x.dtype, [&]<class T>() HWY_ATTR {
    for (int64_t r = 0; r < op.x.rows; ++r) {
      sums.add(op.x.row<T>(r) + begin, op.dy.row<T>(r) + begin, end - begin,
               kCentered ? *op.mean.row<float>(r) : 0, *op.rstd.row<float>(r));
    }
  });
  sums.add_into(op.dweight, op.dbias, begin, end - begin);
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
    if (op.dweight || op.dbias) {
      workers.for_ranges(op.x.cols, columns_per_task(op.x.cols, workers.threads()),
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
