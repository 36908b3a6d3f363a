#include "zeno/kernels/cuda/column_sums.h"

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/vector.h"

namespace zeno::cuda {
namespace {

constexpr int kColumns = 8;  // per block: a sector of 32 bytes, so that narrow sums fill the device, too
constexpr int kThreads = 1024;
constexpr int kRows = kThreads / kColumns;

// Thread t adds blocks t / 8, t / 8 + 128, ... of column t % 8; then the lanes of a warp that share a column,
// then the warps are added, in a fixed order.
template <class G>
__global__ void __launch_bounds__(kThreads)
    add_column_sums_kernel(const float* partial, uint32_t blocks, G* row, int64_t width) {
  __shared__ float tile[kThreads / 32][kColumns];
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t first = int64_t(blockIdx.x) * kColumns;
  const int64_t column = first + lane % kColumns;
  float sum = 0;
  if (column < width) {
#pragma unroll 8
    for (uint32_t b = threadIdx.x / kColumns; b < blocks; b += kRows) sum += partial[b * width + column];
  }
#pragma unroll
  for (int step = kColumns; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane < kColumns) tile[warp][lane] = sum;
  __syncthreads();
  if (warp >= kColumns) return;
  sum = tile[lane][warp];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0 && first + warp < width) {
    row[first + warp] = from_float<G>(to_float(row[first + warp]) + sum);
  }
}

}  // namespace

void add_column_sums(cudaStream_t stream, const float* partial, uint32_t blocks, const Tensor& row) {
  if (row.cols == 0) return;
  dispatch_device(row.dtype, [&]<class G>() {
    add_column_sums_kernel<<<uint32_t(div_ceil<int64_t>(row.cols, kColumns)), kThreads, 0, stream>>>(
        partial, blocks, pointer<G>(row), row.cols);
  });
  check_launch("add_column_sums");
}

}  // namespace zeno::cuda
