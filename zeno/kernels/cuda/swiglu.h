// SwiGLU in registers: the same bits wherever it is computed, in a separate pass or fused into a matmul.
// Device code only.
#pragma once

#include <type_traits>

#include "zeno/kernels/cuda/fast_math.h"

namespace zeno::cuda {

// 1 / (1 + e^-x): e^-x overflows to inf and the quotient to 0. Within 3 ulp when results T have 32 bits, for
// results of 16 bits within 2^-21 + |x| / 2^24 of its value by the errors of the instructions: four of them,
// because at the clock of a long run they bound these kernels.
template <class T>
__device__ inline float sigmoid(float x) {
  if constexpr (std::is_same_v<T, float>) return __fdividef(1.0f, 1.0f + expf(-x));
  return reciprocal(1.0f + exp2_fast(x * -kLog2e));
}

// up becomes silu(gate) · up.
template <class T, int N>
__device__ inline void swiglu(const float (&gate)[N], float (&up)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) up[i] *= gate[i] * sigmoid<T>(gate[i]);
}

// gate and up become their gradients, dy the result of forward.
template <class T, int N>
__device__ inline void swiglu_gradients(float (&gate)[N], float (&up)[N], float (&dy)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float s = sigmoid<T>(gate[i]);
    const float silu = gate[i] * s;
    const float slope = fmaf(silu, 1.0f - s, s);
    const float grad = dy[i];
    dy[i] = up[i] * silu;
    gate[i] = grad * up[i] * slope;
    up[i] = grad * silu;
  }
}

}  // namespace zeno::cuda
