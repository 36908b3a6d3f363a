#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/matmul.h"

namespace zeno::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kSumWarps = 8;      // rows that a block reads at once
constexpr int64_t kPiece = 128;   // rows of one partial sum
constexpr int kFinishWarps = 16;  // partial sums that a block reads at once

__device__ float widen(float x) { return x; }
__device__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ float widen(__half x) { return __half2float(x); }

template <class T>
__device__ T narrow(float x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return x;
  }
}

template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T values[kWidth];
};

// partial[piece][col] = the sum of one piece of rows. A block takes 32·kWidth columns; warp w takes rows w,
// w + 8, … of the piece, then the warps' sums are added in order: the order depends on the row alone, not on
// the width of the loads.
template <class T, int kWidth>
__global__ void __launch_bounds__(kSumWarps* kWarp)
    sum_piece_kernel(const T* __restrict__ dy, int64_t rows, int64_t cols, int64_t stride, int64_t piece_rows,
                     float* __restrict__ partial) {
  __shared__ float sums[kSumWarps][kWarp * kWidth];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first_col = int64_t(blockIdx.x) * kWarp * kWidth, col = first_col + lane * kWidth;
  const int64_t begin = int64_t(blockIdx.y) * piece_rows;
  const int64_t end = min(rows, begin + piece_rows);
  float sum[kWidth] = {};
  if (col < cols) {  // kWidth divides cols
#pragma unroll 8
    for (int64_t row = begin + warp; row < end; row += kSumWarps) {
      const Pack<T, kWidth> pack = *reinterpret_cast<const Pack<T, kWidth>*>(dy + row * stride + col);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum[i] += widen(pack.values[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sums[warp][lane * kWidth + i] = sum[i];
  __syncthreads();
  for (int i = threadIdx.x; i < kWarp * kWidth; i += kSumWarps * kWarp) {
    if (first_col + i >= cols) break;
    float total = 0;
#pragma unroll
    for (int w = 0; w < kSumWarps; ++w) total += sums[w][i];
    partial[int64_t(blockIdx.y) * cols + first_col + i] = total;
  }
}

// dbias[col] += the pieces in a fixed order: warp w takes pieces w, w + 16, …, then the warps in order.
template <class T>
__global__ void __launch_bounds__(kFinishWarps* kWarp)
    add_pieces_kernel(const float* __restrict__ partial, int64_t pieces, int64_t cols,
                      T* __restrict__ dbias) {
  __shared__ float sums[kFinishWarps][kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t col = int64_t(blockIdx.x) * kWarp + lane;
  float sum = 0;
  if (col < cols) {
#pragma unroll 8
    for (int64_t piece = warp; piece < pieces; piece += kFinishWarps) sum += partial[piece * cols + col];
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || col >= cols) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < kFinishWarps; ++w) total += sums[w][lane];
  dbias[col] = narrow<T>(widen(dbias[col]) + total);
}

// The device's type for a host type.
template <class T>
using OnDevice = std::conditional_t<std::is_same_v<T, BF16>, __nv_bfloat16,
                                    std::conditional_t<std::is_same_v<T, F16>, __half, float>>;

// Rows of a piece: fixed by the shape, more only if the partial sums would not fit the scratch.
int64_t piece_rows(int64_t rows, int64_t cols, size_t scratch_bytes) {
  int64_t piece = kPiece;
  while (div_ceil(rows, piece) > 65535 ||
         size_t(div_ceil(rows, piece) * cols) * sizeof(float) > scratch_bytes)
    piece *= 2;
  return piece;
}

template <class T, int kWidth>
void sum_pieces(StreamRef stream, const Tensor& dy, int64_t piece, float* partial) {
  const dim3 blocks(unsigned(div_ceil<int64_t>(dy.cols, kWarp * kWidth)), unsigned(div_ceil(dy.rows, piece)));
  sum_piece_kernel<T, kWidth><<<blocks, kSumWarps * kWarp, 0, native(stream)>>>(
      reinterpret_cast<const T*>(dy.data), dy.rows, dy.cols, dy.stride, piece, partial);
  check_launch("bias_backward: sum pieces");
}

}  // namespace

void bias_backward(StreamRef stream, Tensor dy, Tensor dbias) {
  ensure(is_float(dy.dtype) && is_float(dbias.dtype) && dbias.rows == 1 && dbias.cols == dy.cols,
         "[bias_backward] dbias: got {} [{}, {}], expected [1, {}]", name_of(dbias.dtype), dbias.rows,
         dbias.cols, dy.cols);
  if (dy.count() == 0) return;
  const std::span<std::byte> area = scratch(stream).first(kScratchBytes);
  ensure(size_t(dy.cols) * sizeof(float) <= area.size(), "[bias_backward] {} columns are too many", dy.cols);
  float* const partial = reinterpret_cast<float*>(area.data());
  const int64_t piece = piece_rows(dy.rows, dy.cols, area.size());
  dispatch_float(dy.dtype, [&]<class T>() {
    constexpr int kWidth = 16 / sizeof(T);
    const bool wide = dy.cols % kWidth == 0 && dy.stride % kWidth == 0 && uintptr_t(dy.data) % 16 == 0;
    if (wide)
      sum_pieces<OnDevice<T>, kWidth>(stream, dy, piece, partial);
    else
      sum_pieces<OnDevice<T>, 1>(stream, dy, piece, partial);
  });
  dispatch_float(dbias.dtype, [&]<class T>() {
    const unsigned blocks = unsigned(div_ceil<int64_t>(dy.cols, kWarp));
    add_pieces_kernel<<<blocks, kFinishWarps * kWarp, 0, native(stream)>>>(
        partial, div_ceil(dy.rows, piece), dy.cols, reinterpret_cast<OnDevice<T>*>(dbias.data));
    check_launch("bias_backward: add pieces");
  });
}

}  // namespace zeno::cuda
