#include "zeno/kernels/grad_scan.h"

#include <algorithm>

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/exact_window.h"
#include "zeno/kernels/cuda/vector.h"

namespace zeno::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int64_t kChunk = 32 * kNormBlock;  // elements a warp takes at once: a block for every lane
constexpr int kPiece = 128;                  // bytes of a block that are staged at once
constexpr int kPieceWords = kPiece / 16;

// Sum of squares of a block as the CPU takes it: element i goes to sum i % 8.
struct BlockSquares {
  double sums[8] = {};

  __device__ void add(int slot, float x) { sums[slot] = fma(double(x), double(x), sums[slot]); }
  __device__ double total() const {
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  }
};

// Element by element: the end of the array, odd addresses, and blocks with inf or NaN, which count as 0.
template <class T>
__device__ double careful_squares(const T* x, int64_t begin, int64_t end, uint64_t place, uint32_t* nonfinite,
                                  GradScan* result) {
  BlockSquares block;
  for (int64_t i = 0; i < kNormBlock / 8; ++i) {
#pragma unroll
    for (int slot = 0; slot < 8; ++slot) {
      const int64_t at = begin + 8 * i + slot;
      const float v = at < end ? to_float(x[at]) : 0;
      if (isfinite(v)) {
        block.add(slot, v);
      } else {
        atomicAdd(nonfinite, 1u);
        atomicMax(reinterpret_cast<unsigned long long*>(&result->first_bad), ~(place + uint64_t(at)));
      }
    }
  }
  return block.total();
}

// A warp reads 32 blocks in whole lines and hands each lane its own through shared memory. Rows of nine words
// keep both directions free of bank conflicts.
using Stage = uint4[32][kPieceWords + 1];

template <class T>
__device__ inline double staged_squares(const T* chunk, Stage& stage) {
  constexpr int N = kVector<T>;
  const int lane = int(threadIdx.x) % 32, word = lane % kPieceWords;
  BlockSquares block;
#pragma unroll
  for (int part = 0; part < int(kNormBlock * sizeof(T)) / kPiece; ++part) {
    const T* from = chunk + part * kPiece / int(sizeof(T)) + word * N;
    Pack<T, N> words[kPieceWords];
#pragma unroll
    for (int i = 0; i < kPieceWords; ++i) {
      words[i] = load_once<N>(from + (i * 4 + lane / kPieceWords) * kNormBlock);
    }
    __syncwarp();  // the part before has been read
#pragma unroll
    for (int i = 0; i < kPieceWords; ++i) stage[i * 4 + lane / kPieceWords][word] = words[i].words[0];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPieceWords; ++i) {
      const Pack<T, N> mine{{stage[lane][i]}};
      float v[N];
      unpack(mine, v);
#pragma unroll
      for (int j = 0; j < N; ++j) block.add((i * N + j) % 8, v[j]);
    }
  }
  return block.total();
}

template <class T>
__global__ void __launch_bounds__(kThreads, 3)
    scan_kernel(const T* x, int64_t count, bool aligned, uint64_t place, GradScan* result) {
  __shared__ Stage stages[kWarps];
  __shared__ SharedLimbs limbs;
  limbs.open();
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  ExactWindow window(limbs);
  for (int64_t c = int64_t(blockIdx.x) * kWarps + warp; c < chunks; c += int64_t(gridDim.x) * kWarps) {
    const int64_t begin = c * kChunk + lane * kNormBlock;
    const bool whole = aligned && (c + 1) * kChunk <= count;
    double sum = whole ? staged_squares(x + c * kChunk, stages[warp]) : 0;
    if (!whole || !isfinite(sum)) {
      sum = begin < count ? careful_squares(x, begin, count, place, &limbs.nonfinite, result) : 0;
    }
    __syncwarp();
    window.add(sum);
  }
  window.flush();
  __syncthreads();
  const uint32_t bad = limbs.nonfinite;
  __syncthreads();
  if (threadIdx.x == 0) {
    limbs.nonfinite = 0;  // elements that were left out do not spoil the sum
    if (bad > 0) atomicAdd(reinterpret_cast<unsigned long long*>(&result->nonfinite), bad);
  }
  limbs.close(&result->squares);
}

__global__ void __launch_bounds__(kThreads) sum_kernel(const float* x, int64_t count, ExactSum* sum) {
  __shared__ SharedLimbs limbs;
  limbs.open();
  ExactWindow window(limbs);
  // Whole warps go round together.
  for (int64_t base = int64_t(blockIdx.x) * kThreads; base < count; base += int64_t(gridDim.x) * kThreads) {
    const int64_t i = base + threadIdx.x;
    const double value = i < count ? double(x[i]) : 0;
    if (!isfinite(value)) atomicOr(&limbs.nonfinite, 1u);
    __syncwarp();
    window.add(isfinite(value) ? value : 0);
  }
  window.flush();
  limbs.close(sum);
}

}  // namespace

void grad_scan(StreamRef stream, Tensor grad, GradScan* result, uint64_t place) {
  ensure(grad.contiguous(), "[grad_scan] got stride {} for {} columns, expected a flat tensor", grad.stride,
         grad.cols);
  if (grad.count() == 0) return;
  const int64_t chunks = div_ceil<int64_t>(grad.count(), kChunk);
  const auto blocks = uint32_t(std::min<int64_t>(div_ceil<int64_t>(chunks, kWarps), 3 * multiprocessors()));
  const bool aligned = reinterpret_cast<uintptr_t>(grad.data) % 16 == 0;
  dispatch_device(grad.dtype, [&]<class T>() {
    scan_kernel<<<blocks, kThreads, 0, native(stream)>>>(pointer<T>(grad), grad.count(), aligned, place,
                                                         result);
    check_launch("grad_scan");
  });
}

void sum_exactly(StreamRef stream, Tensor values, ExactSum* sum) {
  ensure(values.contiguous(), "[sum_exactly] got stride {} for {} columns, expected a flat tensor",
         values.stride, values.cols);
  if (values.count() == 0) return;
  const auto blocks = uint32_t(std::min<int64_t>(div_ceil<int64_t>(values.count(), kThreads), 64));
  sum_kernel<<<blocks, kThreads, 0, native(stream)>>>(values.as<float>(), values.count(), sum);
  check_launch("sum_exactly");
}

}  // namespace zeno::cuda
