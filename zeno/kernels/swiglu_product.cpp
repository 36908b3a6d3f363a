#include "zeno/kernels/swiglu_product.h"

#include "zeno/kernels/activation.h"
#include "zeno/kernels/cuda/swiglu_product.h"
#include "zeno/kernels/matmul.h"

namespace zeno {
namespace {

// Whether one kernel did all of it.
template <class Op>
bool run_fused(StreamRef stream, const Op& op) {
  if constexpr (ZENO_CUDA) {
    return op.fused && stream.device().kind == Device::Kind::cuda && cuda::run_fused(stream, op);
  }
  return false;
}

}  // namespace

void swiglu_product_forward(StreamRef stream, const SwigluProduct& op) {
  if (run_fused(stream, op)) return;
  matmul(stream, {.a = op.x, .b = op.weight, .c = op.gate_up, .transpose_b = true});
  swiglu_forward(stream, op.gate_up, op.y);
}

void swiglu_product_backward(StreamRef stream, const SwigluProductBackward& op) {
  if (run_fused(stream, op)) return;
  matmul(stream, {.a = op.dy, .b = op.weight, .c = op.dact});
  swiglu_backward(stream, op.gate_up, op.dact, op.gate_up, op.y);
}

}  // namespace zeno
