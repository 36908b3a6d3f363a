// What the kernels of norms share (rope.h: of heads): a row is read by a team of threads, and weights come in
// fp32 or in the dtype of the activations.
#pragma once

#include "zeno/kernels/cuda/vector.h"
#include "zeno/kernels/norm.h"

namespace zeno::cuda {

inline constexpr int kMaxNormWarps = 16;

__device__ inline float add(float a, float b) { return a + b; }
__device__ inline float2 add(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }
__device__ inline float from_lane(float value, int step) { return __shfl_xor_sync(~0u, value, step); }
__device__ inline float2 from_lane(float2 value, int step) {
  return {from_lane(value.x, step), from_lane(value.y, step)};
}

// Threads of a row's team: parts of a warp only where a thread holds one word; a constant spares arithmetic.
template <bool kWarp, int kGroups>
__device__ inline int team_threads(int lanes) {
  if constexpr (!kWarp) return int(blockDim.x);
  return kGroups > 1 ? 32 : lanes;
}

// Sums (one float, or two) over a team: `team` neighbouring lanes of one warp (a power of two), or the whole
// block when it is wider than a warp. Every thread of the block takes part. `slots` is not used again before
// the next barrier of the block.
template <bool kWarp, class Sum>
__device__ inline Sum team_sum(Sum value, int team, Sum* slots) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    if (!kWarp || step < team) value = add(value, from_lane(value, step));
  }
  if constexpr (!kWarp) {
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = value;
    __syncthreads();
    value = slots[0];
    for (int warp = 1; warp < int(blockDim.x) / 32; ++warp) value = add(value, slots[warp]);
  }
  return value;
}

// weight[i .. i + N), whichever of the two dtypes it has.
template <class T, int N>
__device__ inline void load_weight(const void* weight, bool is_float, int64_t i, float (&w)[N]) {
  if (is_float) {
    unpack(load<N>(static_cast<const float*>(weight) + i), w);
  } else {
    unpack(load<N>(static_cast<const T*>(weight) + i), w);
  }
}

template <class T>
__device__ inline float weight_at(const void* weight, bool is_float, int64_t i) {
  return is_float ? static_cast<const float*>(weight)[i] : to_float(static_cast<const T*>(weight)[i]);
}

}  // namespace zeno::cuda
