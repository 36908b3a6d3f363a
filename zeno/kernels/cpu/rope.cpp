#include "zeno/kernels/rope.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "zeno/kernels/cpu/simd_lanes.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

template <class T>
HWY_INLINE void rotate_head(T* x, const float* angles, int64_t half, float direction) {
  const FloatTag d;
  for_lanes(d, half, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto cosine = load(d, angles + i, lanes);
    const auto sine = hn::Mul(load(d, angles + half + i, lanes), hn::Set(d, direction));
    const auto first = load(d, x + i, lanes);
    const auto second = load(d, x + half + i, lanes);
    store(d, hn::NegMulAdd(second, sine, hn::Mul(first, cosine)), x + i, lanes);
    store(d, hn::MulAdd(first, sine, hn::Mul(second, cosine)), x + half + i, lanes);
  });
}

void rope_rows(const Rope& op, int64_t begin, int64_t end) {
  dispatch_float(op.x.dtype, [&]<class T>() HWY_ATTR {
    const int32_t* positions = op.positions.as<int32_t>();
    for (int64_t r = begin; r < end; ++r) {
      ensure(positions[r] >= 0 && positions[r] < op.table.rows,
             "[rope] position of row {}: got {}, expected 0..{}", r, positions[r], op.table.rows - 1);
      const float* angles = op.table.row<float>(positions[r]);
      T* row = op.x.row<T>(r);
      for (int64_t c = 0; c < op.x.cols; c += op.head_dim) {
        rotate_head(row + c, angles, op.head_dim / 2, op.inverse ? -1.0f : 1.0f);
      }
    }
  });
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::cpu {

HWY_EXPORT(rope_rows);

void rope(StreamRef stream, const Rope& op) {
  ensure(op.head_dim > 0 && op.head_dim % 2 == 0 && op.x.cols % op.head_dim == 0,
         "[rope] head_dim: got {} for {} columns, expected an even divisor", op.head_dim, op.x.cols);
  ensure(op.table.cols == op.head_dim, "[rope] table: got {} columns, expected {}", op.table.cols,
         op.head_dim);
  ensure(op.positions.count() == op.x.rows, "[rope] positions: got {}, expected {}", op.positions.count(),
         op.x.rows);
  stream.launch([=](Workers& workers) {
    const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, op.x.cols));
    workers.for_ranges(op.x.rows, grain, [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(rope_rows)(op, begin, end);
    });
  });
}

}  // namespace zeno::cpu
#endif  // HWY_ONCE
