// SwiGLU fused with the matmul before it (forward) or after it (backward). `fused` asks for one kernel where
// the device has it (Hopper, bf16, rows on 16 bytes): its results may differ from those of the two calls only
// by the order of summation in the matmul. Everywhere else it is matmul() and a pass. Async on the stream,
// deterministic.
#pragma once

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

namespace zeno {

// gate_up = x · weightᵀ, y = silu(gate) · up with gate_up = [gate | up].
struct SwigluProduct {
  Tensor x;        // [R, C]
  Tensor weight;   // [2F, C]
  Tensor gate_up;  // [R, 2F], written
  Tensor y;        // [R, F], written; may be the memory of x unless fused
  bool fused = false;
};
void swiglu_product_forward(StreamRef stream, const SwigluProduct& op);

// The gradient of y is dy · weight; that of gate_up takes its place.
struct SwigluProductBackward {
  Tensor dy;       // [R, C]
  Tensor weight;   // [C, F]
  Tensor gate_up;  // [R, 2F], as forward left it; becomes its gradient
  Tensor dact;     // [R, F], for the gradient of y; holds nothing afterwards
  Tensor y;        // optional [R, F]: forward's result once more; may be dact
  bool fused = false;
};
void swiglu_product_backward(StreamRef stream, const SwigluProductBackward& op);

// C from which on one kernel is the faster of the two ways backward: with less the warps that finish a tile
// take longer than those that multiply the next. On the H200 C = 896 lost 15 %, 1536 and 2048 won 8 and 11 %.
inline constexpr int64_t kFusedBackwardDepth = 1280;

}  // namespace zeno
