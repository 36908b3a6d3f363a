// What forward and backward attention share on top of the packed matmul: panels of a head, key limits of a
// run of queries, rows written back from a transposed tile. Included once per SIMD target like simd_lanes.h.
#if defined(ZENO_KERNELS_CPU_ATTENTION_TILE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZENO_KERNELS_CPU_ATTENTION_TILE_H_
#undef ZENO_KERNELS_CPU_ATTENTION_TILE_H_
#else
#define ZENO_KERNELS_CPU_ATTENTION_TILE_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "zeno/kernels/cpu/attention_view.h"
#include "zeno/kernels/cpu/gemm_rows.h"
#include "zeno/kernels/cpu/gemm_tile.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

inline constexpr int64_t kMaxHeadDim = 256;

// Hands out scratch in pieces aligned to cache lines.
class ScratchCarver {
 public:
  explicit ScratchCarver(float* at) : at_(at) {}
  float* take(int64_t floats) {
    float* piece = at_;
    at_ += (floats + kPanelSlack + 15) / 16 * 16;
    return piece;
  }

 private:
  float* at_;
};

// Rows [row, row + rows) of a head [T, D] as panels [D][W]: the summed dimension is D.
template <int W>
void pack_rows(const Tensor& head, int64_t row, int64_t rows, float* dst) {
  dispatch_float(head.dtype, [&]<class T>() {
    for (int64_t r = 0; r < rows; r += W, dst += W * head.cols) {
      pack_across<W>(head.row<T>(row + r), head.stride, head.cols, head.rows - (row + r), dst);
    }
  });
}

// The same rows as panels [rows][kMR] over kMR columns each: the summed dimension is the rows.
inline void pack_cols(const Tensor& head, int64_t row, int64_t rows, float* dst) {
  dispatch_float(head.dtype, [&]<class T>() {
    for (int64_t c = 0; c < head.cols; c += kMR, dst += kMR * rows) {
      pack_along<kMR>(head.row<T>(row) + c, head.stride, rows, head.cols - c, dst);
    }
  });
}

// A tile [padded D][kNR], one column per token, written as `rows` rows of a head. `buffer` holds kNR × padded
// D.
inline void write_columns(const float* tile, const Tensor& head, int64_t row, int64_t rows, float* buffer) {
  const int64_t wide = padded_head(head.cols);
  for (int64_t c = 0; c < wide; c += 8) pack_across<8>(tile + c * kNR, kNR, rows, 8, buffer + c, wide);
  dispatch_float(head.dtype, [&]<class T>() {
    for (int64_t r = 0; r < rows; ++r) write_row(buffer + r * wide, head.cols, head.row<T>(row + r));
  });
}

// The first keys that queries [begin, begin + count) see.
struct KeyLimits {
  int32_t first[2 * kNR] = {};
  int64_t lowest = 0, highest = 0;  // of `first`

  KeyLimits() = default;
  KeyLimits(const AttentionView& view, int64_t b, int64_t begin, int64_t count)
      : lowest(begin + count), highest(0) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t key = view.first_key(b, begin + i);
      first[i] = int32_t(key);
      lowest = std::min(lowest, key);
      highest = std::max(highest, key);
    }
  }
};

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per-target include guard
