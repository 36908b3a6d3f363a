// RMSNorm and LayerNorm over the last dimension (of heads: rope.h). Statistics and sums are fp32. weight and
// bias are in the dtype of x or in fp32; dweight and dbias are in the gradient dtype (fp32, bf16 or fp16) and
// accumulated into, the sum being taken in fp32.
#pragma once

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

namespace zeno {

struct NormForward {
  Tensor x;         // [R, C]
  Tensor residual;  // optional [R, C]: the norm is taken of x + residual, and that sum is written to `sum`
  Tensor sum;       // [R, C], with residual only; may be x or residual itself
  Tensor weight;    // [1, C]
  Tensor bias;      // LayerNorm only, optional
  Tensor y;         // [R, C]; may be x
  Tensor rstd;      // f32 [R, 1], kept for backward
  Tensor mean;      // f32 [R, 1], LayerNorm only
  float eps = 1e-5f;
};

struct NormBackward {
  Tensor x;  // input of the norm (after the residual sum) [R, C]
  Tensor weight, rstd, mean;
  Tensor dy;         // [R, C]
  Tensor dresidual;  // optional [R, C]: added to dx (the gradient that came along the residual stream)
  Tensor dx;         // [R, C]; may be dy or dresidual
  Tensor dweight;    // [1, C], += ; empty view: weight is frozen
  Tensor dbias;      // LayerNorm only, +=
};

void rmsnorm_forward(StreamRef stream, const NormForward& op);
void rmsnorm_backward(StreamRef stream, const NormBackward& op);
void layernorm_forward(StreamRef stream, const NormForward& op);
void layernorm_backward(StreamRef stream, const NormBackward& op);

}  // namespace zeno
