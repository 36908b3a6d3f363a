#include "zeno/nn/norm.h"

namespace zeno::nn {

void norm_forward(StreamRef stream, Norm kind, const NormForward& op) {
  kind == Norm::rms ? rmsnorm_forward(stream, op) : layernorm_forward(stream, op);
}

void norm_backward(StreamRef stream, Norm kind, const NormBackward& op) {
  kind == Norm::rms ? rmsnorm_backward(stream, op) : layernorm_backward(stream, op);
}

}  // namespace zeno::nn
