#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/matmul/matmul_output.h"

namespace zeno::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostRows = 65535;  // blocks along y

// Types are told apart at run time: this kernel is for rare forms, and three types for each of three operands
// are not worth 27 kernels.
__device__ float load(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::bf16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
    case DType::f16:
      return __half2float(static_cast<const __half*>(data)[i]);
    default:
      return static_cast<const float*>(data)[i];
  }
}

__device__ void store(void* data, DType dtype, int64_t i, float value) {
  switch (dtype) {
    case DType::bf16:
      static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value);
      return;
    case DType::f16:
      static_cast<__half*>(data)[i] = __float2half_rn(value);
      return;
    default:
      static_cast<float*>(data)[i] = value;
  }
}

struct Sum {
  void* c;
  const void *bias, *residual;  // null: none
  DType c_type, bias_type, residual_type;
  int64_t rows, cols, c_stride, residual_stride;
  bool accumulate;
};

__global__ void __launch_bounds__(kThreads) sum_kernel(Sum s) {
  const int64_t col = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (col >= s.cols) return;
  const float bias = s.bias ? load(s.bias, s.bias_type, col) : 0.0f;
  for (int64_t row = blockIdx.y; row < s.rows; row += gridDim.y) {
    const int64_t at = row * s.c_stride + col;
    float sum = bias;
    if (s.accumulate) sum += load(s.c, s.c_type, at);
    if (s.residual) sum += load(s.residual, s.residual_type, row * s.residual_stride + col);
    store(s.c, s.c_type, at, sum);
  }
}

}  // namespace

void prepare_output(StreamRef stream, const Matmul& op) {
  if (op.accumulate && !op.bias && !op.residual) return;
  const Sum sum{.c = op.c.data,
                .bias = op.bias.data,
                .residual = op.residual.data,
                .c_type = op.c.dtype,
                .bias_type = op.bias.dtype,
                .residual_type = op.residual.dtype,
                .rows = op.c.rows,
                .cols = op.c.cols,
                .c_stride = op.c.stride,
                .residual_stride = op.residual.stride,
                .accumulate = op.accumulate};
  const dim3 blocks(unsigned(div_ceil<int64_t>(sum.cols, kThreads)), unsigned(std::min(sum.rows, kMostRows)));
  sum_kernel<<<blocks, kThreads, 0, native(stream)>>>(sum);
  check_launch("matmul: prepare output");
}

}  // namespace zeno::cuda
