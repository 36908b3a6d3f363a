#include "zeno/nn/norm.h"

#include "zeno/device/copy.h"

namespace zeno::nn {

void norm_forward(StreamRef stream, Norm kind, const NormForward& op) {
  kind == Norm::rms ? rmsnorm_forward(stream, op) : layernorm_forward(stream, op);
}

void norm_backward(StreamRef stream, Norm kind, const NormBackward& op, bool fresh) {
  for (const Tensor& gradient : {op.dweight, op.dbias}) {
    if (fresh && gradient) fill_zero_async(stream, gradient.data, gradient.bytes());
  }
  kind == Norm::rms ? rmsnorm_backward(stream, op) : layernorm_backward(stream, op);
}

}  // namespace zeno::nn
