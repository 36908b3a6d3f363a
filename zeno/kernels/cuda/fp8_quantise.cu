#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/vector.h"
#include "zeno/kernels/fp8.h"

namespace zeno::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 8;   // bf16 values of 16 bytes
constexpr int kUnroll = 4;  // 16-byte loads a thread has under way
constexpr int kTile = 128;  // rows and columns of a transposed tile: whole lines on both sides
constexpr uint32_t kInfinity = 0x7f800000;

// Place in Fp8Quantise::scale.
constexpr int kFactor = 0, kMaximum = 1;

// Largest absolute value, as the bits of a float: those of positive numbers are ordered like integers, inf
// and NaN above all of them, so the order of the atomics does not matter. Goes through the matrix from front
// to back.
__global__ void __launch_bounds__(kThreads)
    maximum_kernel(const uint4* x, int64_t groups, uint32_t* maximum) {
  const int64_t step = int64_t(gridDim.x) * kThreads;
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  uint32_t pair = 0;  // two bf16 without sign
  const auto take = [&](const uint4& v) {
    pair = __vmaxu2(pair, __vmaxu2(v.x & 0x7fff7fffu, v.y & 0x7fff7fffu));
    pair = __vmaxu2(pair, __vmaxu2(v.z & 0x7fff7fffu, v.w & 0x7fff7fffu));
  };
  for (; i + (kUnroll - 1) * step < groups; i += kUnroll * step) {
    uint4 v[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) v[k] = x[i + k * step];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) take(v[k]);
  }
  for (; i < groups; i += step) take(x[i]);
  const uint32_t mine = __reduce_max_sync(~0u, max(pair & 0xffff0000u, pair << 16));
  __shared__ uint32_t warps[kThreads / 32];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  uint32_t all = 0;
#pragma unroll
  for (int warp = 0; warp < kThreads / 32; ++warp) all = max(all, warps[warp]);
  atomicMax(maximum, all);
}

template <Fp8Format F>
struct Format;
template <>
struct Format<Fp8Format::e4m3> {
  static constexpr __nv_fp8_interpretation_t kKind = __NV_E4M3;
  static constexpr int kTop = 8;  // exponent of the largest value, which is 1.75 · 2^kTop in both formats
};
template <>
struct Format<Fp8Format::e5m2> {
  static constexpr __nv_fp8_interpretation_t kKind = __NV_E5M2;
  static constexpr int kTop = 15;
};

__device__ inline float power_of_two(int e) { return __uint_as_float(uint32_t(e + 127) << 23); }

// Exponent of the largest power of two that keeps the maximum in range; of zero and of the tiniest values one
// whose inverse is a normal float, too.
template <Fp8Format F>
__device__ inline int scale_exponent(uint32_t maximum) {
  constexpr uint32_t kMantissa = 0x7fffff, kThreeQuarters = 0x600000;
  const int e = Format<F>::kTop - (int(maximum >> 23) - 127) - int((maximum & kMantissa) > kThreeQuarters);
  return min(e, 126);
}

// The multiplier of this matrix; one thread of the grid leaves its inverse for the product.
template <Fp8Format F>
__device__ inline float multiplier(float* scale) {
  const uint32_t maximum = __float_as_uint(scale[kMaximum]);
  const int e = maximum < kInfinity ? scale_exponent<F>(maximum) : 0;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    scale[kFactor] = maximum < kInfinity ? power_of_two(-e) : __uint_as_float(0x7fc00000u);
  }
  return power_of_two(e);
}

template <Fp8Format F>
__device__ inline uint2 quantise(const uint4& from, float factor) {
  const uint32_t words[4] = {from.x, from.y, from.z, from.w};
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 v{__uint_as_float(words[i] << 16) * factor,
                   __uint_as_float(words[i] & 0xffff0000u) * factor};
    pairs[i] = __nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, Format<F>::kKind);
  }
  return {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
}

// Both kernels go from back to front, since the end of the matrix may still be in the cache from the search
// for its maximum, and start to load before they know it.
template <Fp8Format F>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(const uint4* x, int64_t groups, uint2* rows, float* scale) {
  const int64_t begin = int64_t(gridDim.x - 1 - blockIdx.x) * kThreads * kUnroll + threadIdx.x;
  uint4 in[kUnroll];
#pragma unroll
  for (int k = 0; k < kUnroll; ++k) {
    if (begin + k * kThreads < groups) in[k] = __ldcs(x + begin + k * kThreads);
  }
  const float factor = multiplier<F>(scale);
#pragma unroll
  for (int k = 0; k < kUnroll; ++k) {
    if (begin + k * kThreads < groups) rows[begin + k * kThreads] = quantise<F>(in[k], factor);
  }
}

// Four words of four bytes, rows to columns.
__device__ inline void transpose(uint32_t (&w)[4]) {
  const uint32_t a = __byte_perm(w[0], w[1], 0x5140), b = __byte_perm(w[2], w[3], 0x5140);
  const uint32_t c = __byte_perm(w[0], w[1], 0x7362), d = __byte_perm(w[2], w[3], 0x7362);
  w[0] = __byte_perm(a, b, 0x5410);
  w[1] = __byte_perm(a, b, 0x7632);
  w[2] = __byte_perm(c, d, 0x5410);
  w[3] = __byte_perm(c, d, 0x7632);
}

// A tile as its transpose: a line of 32 words for every column, word w holding rows 4w .. 4w + 3. Words are
// permuted by w ^ 2 · (column / 8), so that the 32 lanes of a store (2 words × 16 groups of columns) meet 32
// banks; the 16-byte pieces of a line stay together, their halves perhaps swapped.
struct Tile {
  uint32_t words[kTile][kTile / 4];

  __device__ void put(int column, int word, uint32_t value) {
    words[column][word ^ (2 * (column / kGroup))] = value;
  }
  __device__ uint4 piece(int column, int p) const {
    const int group = column / kGroup;
    const uint4 v = reinterpret_cast<const uint4*>(words[column])[p ^ (group / 2)];
    return group % 2 == 0 ? v : uint4{v.z, v.w, v.x, v.y};
  }
};

// Sizes are multiples of 16: groups of 4 rows, 8 columns or 16 bytes lie inside the matrix or outside.
template <Fp8Format F>
__global__ void __launch_bounds__(kThreads)
    tile_kernel(const __nv_bfloat16* x, int64_t height, int64_t width, uint32_t tiles_across, uint8_t* rows,
                uint8_t* columns, float* scale) {
  constexpr int kAcross = kTile / kGroup, kParts = kTile / 4 / (kThreads / kAcross);
  __shared__ __align__(16) Tile tile;
  const uint32_t index = gridDim.x - 1 - blockIdx.x;
  const int64_t top = int64_t(index / tiles_across) * kTile, left = int64_t(index % tiles_across) * kTile;
  const int across = int(threadIdx.x) % kAcross, down = int(threadIdx.x) / kAcross;
  const int64_t column = left + across * kGroup;

  uint4 in[kParts][4];
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int64_t row = top + 4 * (part * (kThreads / kAcross) + down);
    if (row >= height || column >= width) continue;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      in[part][r] = __ldcs(reinterpret_cast<const uint4*>(x + (row + r) * width + column));
    }
  }
  const float factor = multiplier<F>(scale);
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int word = part * (kThreads / kAcross) + down;
    const int64_t row = top + 4 * word;
    if (row >= height || column >= width) continue;
    uint32_t low[4], high[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const uint2 v = quantise<F>(in[part][r], factor);
      low[r] = v.x, high[r] = v.y;
      if (rows != nullptr) *reinterpret_cast<uint2*>(rows + (row + r) * width + column) = v;
    }
    transpose(low);
    transpose(high);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      tile.put(across * kGroup + c, word, low[c]);
      tile.put(across * kGroup + 4 + c, word, high[c]);
    }
  }
  __syncthreads();
  constexpr int kPieces = kTile / 16;
#pragma unroll
  for (int i = int(threadIdx.x); i < kTile * kPieces; i += kThreads) {
    const int64_t to = left + i / kPieces, from = top + i % kPieces * 16;
    if (to >= width || from >= height) continue;
    *reinterpret_cast<uint4*>(columns + to * height + from) = tile.piece(i / kPieces, i % kPieces);
  }
}

void check(const Fp8Quantise& op) {
  const Tensor& x = op.x;
  ensure(
      x.dtype == DType::bf16 && x.contiguous() && x.rows % 16 == 0 && x.cols % 16 == 0 && rows_aligned(x),
      "[fp8_quantise] got {} {} x {} with stride {}, expected aligned bf16 without gaps, sizes multiples of "
      "16",
      name_of(x.dtype), x.rows, x.cols, x.stride);
  const auto check_copy = [](const Tensor& t, int64_t rows, int64_t cols) {
    ensure(!t || (t.rows == rows && t.cols == cols && t.contiguous() && rows_aligned(t)),
           "[fp8_quantise] copy: got {} x {} with stride {}, expected {} x {}, aligned", t.rows, t.cols,
           t.stride, rows, cols);
  };
  check_copy(op.rows, x.rows, x.cols);
  check_copy(op.columns, x.cols, x.rows);
  ensure(op.scale.count() == 2 && op.scale.contiguous(), "[fp8_quantise] scale: got {} values, expected 2",
         op.scale.count());
}

uint32_t grid(int64_t blocks) {
  ensure(blocks < int64_t(1) << 31, "[fp8_quantise] got {} blocks, expected less than 2^31", blocks);
  return uint32_t(blocks);
}

template <Fp8Format F>
void launch(cudaStream_t stream, const Fp8Quantise& op) {
  const Tensor& x = op.x;
  float* scale = op.scale.as<float>();
  if (!op.columns) {
    const int64_t groups = x.count() / kGroup;
    rows_kernel<F><<<grid(div_ceil<int64_t>(groups, kThreads * kUnroll)), kThreads, 0, stream>>>(
        pointer<uint4>(x), groups, pointer<uint2>(op.rows), scale);
  } else {
    const int64_t across = div_ceil<int64_t>(x.cols, kTile), down = div_ceil<int64_t>(x.rows, kTile);
    tile_kernel<F><<<grid(across * down), kThreads, 0, stream>>>(pointer<__nv_bfloat16>(x), x.rows, x.cols,
                                                                 uint32_t(across), pointer<uint8_t>(op.rows),
                                                                 pointer<uint8_t>(op.columns), scale);
  }
  check_launch("fp8_quantise");
}

}  // namespace

void fp8_quantise(StreamRef stream, const Fp8Quantise& op) {
  check(op);
  if (op.x.count() == 0 || (!op.rows && !op.columns)) return;
  const cudaStream_t native_stream = native(stream);
  float* maximum = op.scale.as<float>() + kMaximum;
  cuda::check(cudaMemsetAsync(maximum, 0, sizeof(float), native_stream), "fp8_quantise");
  const int64_t groups = op.x.count() / kGroup;
  constexpr int kBlocksPerProcessor = 2048 / kThreads;
  const int64_t blocks =
      std::min<int64_t>(div_ceil<int64_t>(groups, kThreads), multiprocessors() * kBlocksPerProcessor);
  maximum_kernel<<<uint32_t(blocks), kThreads, 0, native_stream>>>(pointer<uint4>(op.x), groups,
                                                                   reinterpret_cast<uint32_t*>(maximum));
  check_launch("fp8_quantise");
  if (op.format == Fp8Format::e4m3) {
    launch<Fp8Format::e4m3>(native_stream, op);
  } else {
    launch<Fp8Format::e5m2>(native_stream, op);
  }
}

}  // namespace zeno::cuda
