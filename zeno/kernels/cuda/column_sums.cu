#include "zeno/kernels/cuda/column_sums.h"

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/vector.h"

namespace zeno::cuda {
namespace {

constexpr int kRows = 32;

// 32 columns per block; thread (x, y) adds blocks y, y + 32, ... of column x, and the 32 sums are added in
// order.
template <class G>
__global__ void __launch_bounds__(32 * kRows)
    add_column_sums_kernel(const float* partial, uint32_t blocks, G* row, int64_t width) {
  __shared__ float tile[kRows][32];
  const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.x;
  float sum = 0;
  if (column < width) {
#pragma unroll 8
    for (uint32_t b = threadIdx.y; b < blocks; b += kRows) sum += partial[b * width + column];
  }
  tile[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= width) return;
#pragma unroll
  for (int y = 1; y < kRows; ++y) sum += tile[y][threadIdx.x];
  row[column] = from_float<G>(to_float(row[column]) + sum);
}

}  // namespace

void add_column_sums(cudaStream_t stream, const float* partial, uint32_t blocks, const Tensor& row) {
  if (row.cols == 0) return;
  dispatch_device(row.dtype, [&]<class G>() {
    add_column_sums_kernel<<<uint32_t(div_ceil<int64_t>(row.cols, 32)), dim3(32, kRows), 0, stream>>>(
        partial, blocks, pointer<G>(row), row.cols);
  });
  check_launch("add_column_sums");
}

}  // namespace zeno::cuda
