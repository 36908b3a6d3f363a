// Matrix multiplication with the shapes and fusions that a transformer needs. Operands are stored in fp32,
// bf16 or fp16 (each its own), sums run in fp32. Every element of C is summed over K in one fixed order that
// does not depend on the number of threads, on M or on N: same bits whatever the setting.
#pragma once

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

namespace zeno {

struct Matmul {
  Tensor a;  // [M, K], or [K, M] when transpose_a
  Tensor b;  // [K, N], or [N, K] when transpose_b
  Tensor c;  // [M, N]
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  // C += A·B (summed in fp32, rounded to the dtype of C), else C = A·B
  Tensor bias;              // optional [1, N], added to every row
  Tensor residual;          // optional [M, N], added to the product; may be C itself
};

void matmul(StreamRef stream, const Matmul& op);

// dbias[n] += Σ_m dy[m, n]; dbias is [1, N] in the gradient dtype (fp32, bf16 or fp16), summed in fp32.
void bias_backward(StreamRef stream, Tensor dy, Tensor dbias);

// Scratch that a stream must offer for any kernel of this folder: per thread on the CPU, per stream on CUDA.
size_t kernel_scratch_bytes(Device::Kind kind = Device::Kind::cpu);

}  // namespace zeno
