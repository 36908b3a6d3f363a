// Special functions of one instruction each, within 2 ulp. Results below 2^-126 are 0.
#pragma once

namespace zeno::cuda {

inline constexpr float kLog2e = 1.44269504f;

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace zeno::cuda
