// Rows of fp32 sums on their way to memory: add a row of any storage type, write a row rounded once. Included
// once per SIMD target like simd_lanes.h.
#if defined(ZENO_KERNELS_CPU_GEMM_ROWS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZENO_KERNELS_CPU_GEMM_ROWS_H_
#undef ZENO_KERNELS_CPU_GEMM_ROWS_H_
#else
#define ZENO_KERNELS_CPU_GEMM_ROWS_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "zeno/kernels/cpu/simd_lanes.h"
#include "zeno/kernels/matmul.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

// sums[i] += src[i]
template <class T>
HWY_NOINLINE void add_row(const T* src, int64_t n, float* sums) {
  const FloatTag d;
  for_lanes(d, n, [&](int64_t i, auto lanes) HWY_ATTR {
    store(d, hn::Add(load(d, sums + i, lanes), load(d, src + i, lanes)), sums + i, lanes);
  });
}

// dst[i] = sums[i], rounded to T
template <class T>
HWY_NOINLINE void write_row(const float* sums, int64_t n, T* dst) {
  const FloatTag d;
  for_lanes(d, n,
            [&](int64_t i, auto lanes) HWY_ATTR { store(d, load(d, sums + i, lanes), dst + i, lanes); });
}

// Applies the fused operations to `rows` finished rows of sums, in the order of TileOutput, and writes them
// to C.
inline void finish_rows(const Matmul& op, int64_t row, int64_t rows, int64_t col, int64_t cols, float* sums,
                        int64_t ld) {
  const auto add = [&](const Tensor& t, int64_t r, float* sum) {
    dispatch_float(t.dtype, [&]<class T>() { add_row(t.row<T>(r) + col, cols, sum); });
  };
  for (int64_t r = row; r < row + rows; ++r, sums += ld) {
    if (op.bias) add(op.bias, 0, sums);
    if (op.accumulate) add(op.c, r, sums);
    if (op.residual) add(op.residual, r, sums);
    dispatch_float(op.c.dtype, [&]<class T>() { write_row(sums, cols, op.c.row<T>(r) + col); });
  }
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per-target include guard
