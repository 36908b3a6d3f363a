// Matmul of 8-bit floating-point operands on the tensor cores of a GPU (compute capability 8.9 and up). Sums
// run in fp32 all the way (fast accumulation is off). Planned, tuned and cached like any other matmul: see
// matmul_plans.h. Operands and scales are owned by the caller; async on the stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

namespace zeno::cuda {

// C [M, N] = (A [M, K] · B [N, K]ᵀ) * scale_a * scale_b (+ C) (+ bias) (+ residual). A and B are row-major
// without gaps, 16-byte aligned, e4m3 unless told otherwise; at most one of them is e5m2. N and K are
// multiples of 16.
struct Fp8Matmul {
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  bool a_e5m2 = false, b_e5m2 = false;
  const float* scale_a = nullptr;  // dequantisation factors of whole operands, in device memory
  const float* scale_b = nullptr;
  int64_t m = 0, n = 0, k = 0;
  Tensor c;                 // bf16 or f32
  bool accumulate = false;  // C += ..., summed in fp32, else C = ...
  Tensor bias;              // optional [1, N], added to every row
  Tensor residual;          // optional [M, N], added to the product; may be C itself
};

void matmul_fp8(StreamRef stream, const Fp8Matmul& op);

}  // namespace zeno::cuda
