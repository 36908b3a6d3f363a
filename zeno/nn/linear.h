// The backward pass of y = x·Wᵀ + bias, shared by all layers. Async on the stream.
#pragma once

#include "zeno/device/stream.h"
#include "zeno/tensor/tensor.h"

namespace zeno::nn {

struct LinearBackward {
  Tensor x;            // [R, K], input of forward; read only when dweight is given
  Tensor dy;           // [R, N]
  Tensor weight;       // [N, K]
  Tensor dx;           // [R, K], written last: may be x; empty view: not wanted
  Tensor dweight;      // [N, K], += ; empty view: frozen
  Tensor dbias;        // [1, N], += ; empty view: none or frozen
  bool fresh = false;  // write dweight and dbias instead of adding to them
};

void linear_backward(StreamRef stream, const LinearBackward& op);

}  // namespace zeno::nn
