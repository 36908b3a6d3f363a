// RMSNorm and LayerNorm over the last dimension. Statistics and sums are fp32. `inner` lets one call
// normalise the heads of a packed matrix: each row of x is `inner` vectors of cols/inner values that share
// one weight. weight/bias are in the parameter dtype [1, cols/inner]; dweight/dbias are in the gradient dtype
// (fp32, bf16 or fp16) and accumulated into, the sum being taken in fp32.
#pragma once

#include "zeno/device/stream.h"
#include "zeno/tensor/tensor.h"

namespace zeno {

struct NormForward {
  Tensor x;         // [R, C]
  Tensor residual;  // optional [R, C]: the norm is taken of x + residual, and that sum is written to `sum`
  Tensor sum;       // [R, C], with residual only; may be x or residual itself
  Tensor weight;    // [1, C/inner]
  Tensor bias;      // LayerNorm only, optional
  Tensor y;         // [R, C]; may be x
  Tensor rstd;      // f32 [R, inner], kept for backward
  Tensor mean;      // f32 [R, inner], LayerNorm only
  float eps = 1e-5f;
  int64_t inner = 1;
};

struct NormBackward {
  Tensor x;  // input of the norm (after the residual sum) [R, C]
  Tensor weight, rstd, mean;
  Tensor dy;         // [R, C]
  Tensor dresidual;  // optional [R, C]: added to dx (the gradient that came along the residual stream)
  Tensor dx;         // [R, C]; may be dy or dresidual
  Tensor dweight;    // [1, C/inner], += ; empty view: weight is frozen
  Tensor dbias;      // LayerNorm only, +=
  int64_t inner = 1;
};

void rmsnorm_forward(StreamRef stream, const NormForward& op);
void rmsnorm_backward(StreamRef stream, const NormBackward& op);
void layernorm_forward(StreamRef stream, const NormForward& op);
void layernorm_backward(StreamRef stream, const NormBackward& op);

}  // namespace zeno
