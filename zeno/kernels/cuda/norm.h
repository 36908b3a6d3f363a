// What the forward and the backward norm kernels share: a vector (a row, or one head of it) is read by a team
// of threads, and weights come in fp32 or in the dtype of the activations.
#pragma once

#include "zeno/kernels/cuda/vector.h"
#include "zeno/kernels/norm.h"

namespace zeno::cuda {

inline constexpr int kMaxNormWarps = 16;

// Sums over a team: `team` neighbouring lanes of one warp (a power of two), or the whole block when it is
// wider than a warp. Every thread of the block takes part. `slots` is not used again before the next barrier
// of the block.
template <bool kWarp>
__device__ inline float2 team_sum(float2 value, int team, float2* slots) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    if (kWarp && step >= team) continue;
    value.x += __shfl_xor_sync(~0u, value.x, step);
    value.y += __shfl_xor_sync(~0u, value.y, step);
  }
  if constexpr (!kWarp) {
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = value;
    __syncthreads();
    value = slots[0];
    for (int warp = 1; warp < int(blockDim.x) / 32; ++warp) {
      value.x += slots[warp].x;
      value.y += slots[warp].y;
    }
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
