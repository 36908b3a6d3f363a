// Matrices of 8-bit floats and their matmul, on GPUs only: e4m3 has more digits, e5m2 more range. A whole
// tensor shares one scale, a power of two taken from its own absolute maximum: no value saturates, and
// scaling rounds nothing. Views only, owned by the caller; async on the stream.
#pragma once

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

namespace zeno {

enum class Fp8Format { e4m3, e5m2 };

// Quantises a bf16 matrix in row order, in column order, or both in one pass. Inf or NaN anywhere makes the
// factor NaN: every result is then NaN, and the scan of gradients finds it.
struct Fp8Quantise {
  Tensor x;  // bf16 [R, C] without gaps; R and C are multiples of 16
  Fp8Format format = Fp8Format::e4m3;
  Tensor rows;     // u8 [R, C]; empty view: not wanted
  Tensor columns;  // u8 [C, R], the transpose; empty view: not wanted
  Tensor scale;    // f32 [1, 2], written: the factor that leads back from 8 bits, and the maximum
};
void fp8_quantise(StreamRef stream, const Fp8Quantise& op);

struct Fp8Matrix {
  Tensor values;  // u8, without gaps
  Tensor scale;   // as fp8_quantise wrote it
  Fp8Format format = Fp8Format::e4m3;
};

// C [M, N] = A [M, K] · B [N, K]ᵀ (+ C) (+ bias) (+ residual), summed in fp32. N and K are multiples of 16;
// at most one operand is e5m2.
struct Fp8Product {
  Fp8Matrix a, b;
  Tensor c;                 // bf16 or f32
  bool accumulate = false;  // C += ..., else C = ...
  Tensor bias;              // optional [1, N], added to every row
  Tensor residual;          // optional [M, N], added to the product; may be C itself
};
void fp8_matmul(StreamRef stream, const Fp8Product& op);

}  // namespace zeno
