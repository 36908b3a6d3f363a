// Stands in for zeno/kernels/cuda/fast_math.h on the host.
#pragma once

#include <cmath>

namespace zeno::cuda {

inline constexpr float kLog2e = 1.44269504f;

inline float exp2_fast(float x) { return std::exp2(x); }
inline float reciprocal(float x) { return 1 / x; }

}  // namespace zeno::cuda
