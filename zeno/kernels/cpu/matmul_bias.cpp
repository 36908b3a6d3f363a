#include <algorithm>

#include "zeno/base/math.h"
#include "zeno/kernels/cpu/kernel_scratch.h"
#include "zeno/kernels/matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/matmul_bias.cpp"
#include <hwy/foreach_target.h>

#include "zeno/kernels/cpu/gemm_rows.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

inline constexpr int64_t kBiasStrip = 512;  // columns of one task
// Rows are summed in pieces of this many, then the pieces: fixed by M alone, and short chains keep the error
// small.
inline constexpr int64_t kBiasRows = 128;

void sum_bias_strip(const Tensor& dy, const Tensor& dbias, int64_t col, int64_t cols) {
  float total[kBiasStrip] = {}, piece[kBiasStrip];
  dispatch_float(dy.dtype, [&]<class T>() {
    for (int64_t begin = 0; begin < dy.rows; begin += kBiasRows) {
      std::fill_n(piece, cols, 0.0f);
      const int64_t end = std::min(dy.rows, begin + kBiasRows);
      for (int64_t m = begin; m < end; ++m) add_row(dy.row<T>(m) + col, cols, piece);
      add_row(piece, cols, total);
    }
  });
  dispatch_float(dbias.dtype, [&]<class T>() {
    add_row(dbias.as<T>() + col, cols, total);
    write_row(total, cols, dbias.as<T>() + col);
  });
}

void run_bias_backward(Workers& workers, const Tensor& dy, const Tensor& dbias) {
  workers.for_ranges(dy.cols, kBiasStrip,
                     [&](int64_t begin, int64_t end, int) { sum_bias_strip(dy, dbias, begin, end - begin); });
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::cpu {
HWY_EXPORT(run_bias_backward);

void bias_backward(StreamRef stream, Tensor dy, Tensor dbias) {
  ensure(is_float(dy.dtype) && is_float(dbias.dtype) && dbias.rows == 1 && dbias.cols == dy.cols,
         "[bias_backward] dbias: got {} [{}, {}], expected [1, {}]", name_of(dbias.dtype), dbias.rows,
         dbias.cols, dy.cols);
  stream.launch([=](Workers& workers) { HWY_DYNAMIC_DISPATCH(run_bias_backward)(workers, dy, dbias); });
}

size_t kernel_scratch_bytes() { return size_t(kScratchBytes); }

}  // namespace zeno::cpu
#endif
