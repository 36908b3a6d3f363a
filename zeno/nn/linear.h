// y = x·Wᵀ + bias and its backward pass, shared by all layers. Async on the stream.
//
// With a workspace for it, the matmuls run in fp8: operands are quantised right before they are used, weights
// and activations as e4m3, gradients as e5m2, and nothing of that outlives the call. Without one they run in
// the dtype of their operands.
#pragma once

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"
#include "zeno/nn/layout.h"
#include "zeno/nn/work.h"

namespace zeno::nn {

struct LinearForward {
  Tensor x;         // [R, K]
  Tensor weight;    // [N, K]
  Tensor bias;      // [1, N]; empty view: none
  Tensor residual;  // [R, N], added; empty view: none
  Tensor y;         // [R, N], written
  Tensor fp8;       // workspace; empty view: no fp8
};

void linear_forward(StreamRef stream, const LinearForward& op);

struct LinearBackward {
  Tensor x;            // [R, K], input of forward; read only when dweight is given
  Tensor dy;           // [R, N]
  Tensor weight;       // [N, K]
  Tensor dx;           // [R, K], written last: may be x; empty view: not wanted
  Tensor dweight;      // [N, K], += ; empty view: frozen
  Tensor dbias;        // [1, N], += ; empty view: none or frozen
  bool fresh = false;  // write dweight and dbias instead of adding to them
  Tensor fp8;          // workspace; empty view: no fp8
};

void linear_backward(StreamRef stream, const LinearBackward& op);

struct LinearWork {
  double rows = 0, in = 0, out = 0;  // R, K, N
  DType compute = DType::f32;
  bool fp8 = false;
  bool trained = true;  // dweight is wanted
};
LayerWork work_of(const LinearWork& linear);

// The fp8 workspace of both, for x [R, K] and a weight [N, K]. Sizes that fp8 cannot take are a usage error.
Tensor take_fp8(Layout& work, int64_t rows, int64_t in, int64_t out);

}  // namespace zeno::nn
