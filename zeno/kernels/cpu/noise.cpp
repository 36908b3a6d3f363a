#include "zeno/kernels/noise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/noise.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>

#include "zeno/kernels/cpu/simd_lanes.h"
#include "zeno/kernels/cpu/simd_random.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

// The random bits of neighbouring columns.
template <class D>
HWY_INLINE hn::Vec<U32Tag<D>> column_bits(D, uint64_t key, int64_t column) {
  const U32Tag<D> du;
  return random_bits32(du, key, counters_from(du, uint32_t(column)));
}

template <class T>
HWY_INLINE void dropout_row(const T* x, T* y, int64_t cols, uint64_t key, const Dropout& op) {
  const FloatTag d;
  const U32Tag<FloatTag> du;
  const auto factor = hn::Set(d, 1.0f / (1.0f - op.probability));
  const auto threshold = hn::Set(du, dropout_threshold(op.probability));
  for_lanes(d, cols, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto drop = hn::RebindMask(d, hn::Lt(column_bits(d, key, i), threshold));
    auto value = hn::IfThenZeroElse(drop, hn::Mul(load(d, x + i, lanes), factor));
    if (op.accumulate) value = hn::Add(load(d, y + i, lanes), value);
    store(d, value, y + i, lanes);
  });
}

template <class T>
HWY_INLINE void noise_row(T* y, int64_t cols, uint64_t key, float size) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  for_lanes(d, cols, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto top = hn::BitCast(di, hn::ShiftRight<8>(column_bits(d, key, i)));
    const auto unit = hn::Mul(hn::ConvertTo(d, hn::Sub(top, hn::Set(di, 1 << 23))), hn::Set(d, 0x1p-23f));
    store(d, hn::Add(load(d, y + i, lanes), hn::Mul(unit, hn::Set(d, size))), y + i, lanes);
  });
}

void dropout_rows(const Dropout& op, int64_t begin, int64_t end) {
  const uint64_t key = uint64_t(*op.noise.key.as<int64_t>());
  dispatch_float(op.x.dtype, [&]<class T>() HWY_ATTR {
    for (int64_t row = begin; row < end; ++row)
      dropout_row(op.x.row<T>(row), op.y.row<T>(row), op.x.cols,
                  noise_key(key, op.noise.site, op.noise.first_row + row), op);
  });
}

void noise_rows(const UniformNoise& op, int64_t begin, int64_t end) {
  const uint64_t key = uint64_t(*op.noise.key.as<int64_t>());
  dispatch_float(op.y.dtype, [&]<class T>() HWY_ATTR {
    for (int64_t row = begin; row < end; ++row)
      noise_row(op.y.row<T>(row), op.y.cols, noise_key(key, op.noise.site, op.noise.first_row + row),
                op.size);
  });
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "zeno/kernels/shape_checks.h"

namespace zeno::cpu {

HWY_EXPORT(dropout_rows);
HWY_EXPORT(noise_rows);

namespace {

int64_t grain(int64_t cols) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cols)); }

}  // namespace

void dropout(StreamRef stream, const Dropout& op) {
  check_shapes(op);
  stream.launch([=](Workers& workers) {
    workers.for_ranges(op.x.rows, grain(op.x.cols), [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(dropout_rows)(op, begin, end);
    });
  });
}

void add_uniform_noise(StreamRef stream, const UniformNoise& op) {
  check_shapes(op);
  stream.launch([=](Workers& workers) {
    workers.for_ranges(op.y.rows, grain(op.y.cols), [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(noise_rows)(op, begin, end);
    });
  });
}

}  // namespace zeno::cpu
#endif  // HWY_ONCE
