#include "zeno/kernels/rope.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "zeno/kernels/cpu/norm_vector.h"
#include "zeno/kernels/cpu/simd_lanes.h"
#include "zeno/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

template <class Op>
HWY_INLINE const float* angles_of(const Op& op, int64_t r) {
  const int32_t position = op.positions.template as<int32_t>()[r];
  ensure(position >= 0 && position < op.table.rows, "[rope] position of row {}: got {}, expected 0..{}", r,
         position, op.table.rows - 1);
  return op.table.template row<float>(position);
}

// y may be x.
template <class T>
HWY_INLINE void rotate_head(const T* x, T* y, const float* angles, int64_t half, float direction) {
  const FloatTag d;
  for_lanes(d, half, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto cosine = load(d, angles + i, lanes);
    const auto sine = hn::Mul(load(d, angles + half + i, lanes), hn::Set(d, direction));
    const auto first = load(d, x + i, lanes);
    const auto second = load(d, x + half + i, lanes);
    store(d, hn::NegMulAdd(second, sine, hn::Mul(first, cosine)), y + i, lanes);
    store(d, hn::MulAdd(first, sine, hn::Mul(second, cosine)), y + half + i, lanes);
  });
}

template <class T, class W>
HWY_INLINE void forward_row(const RopeForward& op, int64_t r) {
  const int64_t width = op.head_dim, heads = op.q_heads + op.k_heads;
  const float* angles = angles_of(op, r);
  const T* x = op.x.row<T>(r);
  T* y = op.y.row<T>(r);
  if (op.raw) std::memcpy(op.raw.row<T>(r), x, size_t(heads * width) * sizeof(T));
  if (y != x)
    std::memcpy(y + heads * width, x + heads * width, size_t(op.x.cols - heads * width) * sizeof(T));
  for (int64_t h = 0; h < heads; ++h) {
    const T* from = x + h * width;
    T* to = y + h * width;
    if (op.q_weight) {
      const W* weight = (h < op.q_heads ? op.q_weight : op.k_weight).as<W>();
      op.rstd.row<float>(r)[h] = rmsnorm_vector(from, weight, to, width, op.eps);
      from = to;
    }
    rotate_head(from, to, angles, width / 2, 1.0f);
  }
}

void rope_forward_rows(const RopeForward& op, int64_t begin, int64_t end) {
  dispatch_float(op.x.dtype, [&]<class T>() HWY_ATTR {
    dispatch_weight<T>(op.q_weight, [&]<class W>() HWY_ATTR {
      for (int64_t r = begin; r < end; ++r) forward_row<T, W>(op, r);
    });
  });
}

// dy → the gradient of the normalised heads.
void rope_turn_back_rows(const RopeBackward& op, int64_t begin, int64_t end) {
  dispatch_float(op.dx.dtype, [&]<class T>() HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) {
      const float* angles = angles_of(op, r);
      T* row = op.dx.row<T>(r);
      for (int64_t h = 0; h < op.q_heads + op.k_heads; ++h) {
        rotate_head(row + h * op.head_dim, row + h * op.head_dim, angles, op.head_dim / 2, -1.0f);
      }
    }
  });
}

void rope_norm_rows(const RopeBackward& op, int64_t begin, int64_t end) {
  dispatch_float(op.dx.dtype, [&]<class T>() HWY_ATTR {
    dispatch_weight<T>(op.q_weight, [&]<class W>() HWY_ATTR {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t h = 0; h < op.q_heads + op.k_heads; ++h) {
          T* dx = op.dx.row<T>(r) + h * op.head_dim;
          backward_vector<false>(
              op.x.row<T>(r) + h * op.head_dim, (h < op.q_heads ? op.q_weight : op.k_weight).as<W>(), dx,
              static_cast<const T*>(nullptr), dx, op.head_dim, 0, op.rstd.row<float>(r)[h]);
        }
      }
    });
  });
}

void rope_weight_columns(const RopeBackward& op, int64_t begin, int64_t end) {
  const auto sum_heads = [&](int64_t first, int64_t heads, const Tensor& gradient) HWY_ATTR {
    if (!gradient) return;
    ColumnSums<false> sums;
    dispatch_float(op.dx.dtype, [&]<class T>() HWY_ATTR {
      for (int64_t r = 0; r < op.dx.rows; ++r) {
        for (int64_t h = first; h < first + heads; ++h) {
          const int64_t at = h * op.head_dim + begin;
          sums.add(op.x.row<T>(r) + at, op.dx.row<T>(r) + at, end - begin, 0, op.rstd.row<float>(r)[h]);
        }
      }
    });
    sums.add_into(gradient, Tensor(), begin, end - begin);
  };
  sum_heads(0, op.q_heads, op.dq_weight);
  sum_heads(op.q_heads, op.k_heads, op.dk_weight);
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::cpu {

HWY_EXPORT(rope_forward_rows);
HWY_EXPORT(rope_turn_back_rows);
HWY_EXPORT(rope_norm_rows);
HWY_EXPORT(rope_weight_columns);

namespace {

int64_t rows_per_task(int64_t cols) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cols)); }

}  // namespace

void rope_forward(StreamRef stream, const RopeForward& op) {
  check_shapes(op);
  stream.launch([=](Workers& workers) {
    workers.for_ranges(op.x.rows, rows_per_task(op.x.cols), [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(rope_forward_rows)(op, begin, end);
    });
  });
}

void rope_backward(StreamRef stream, const RopeBackward& op) {
  check_shapes(op);
  stream.launch([=](Workers& workers) {
    const int64_t grain = rows_per_task(op.dx.cols);
    workers.for_ranges(op.dx.rows, grain, [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(rope_turn_back_rows)(op, begin, end);
    });
    if (!op.q_weight) return;
    // The gradient of the inputs takes the place of what these sums read, so they come first.
    if (op.dq_weight || op.dk_weight) {
      workers.for_ranges(op.head_dim, 32, [&](int64_t begin, int64_t end, int) {
        HWY_DYNAMIC_DISPATCH(rope_weight_columns)(op, begin, end);
      });
    }
    workers.for_ranges(op.dx.rows, grain, [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(rope_norm_rows)(op, begin, end);
    });
  });
}

}  // namespace zeno::cpu
#endif  // HWY_ONCE
