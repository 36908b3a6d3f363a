// How both halves of a block begin: h = norm(x), then y = h·Wᵀ + bias, and what an adapter adds. Async on the
// stream.
#pragma once

#include <span>

#include "zeno/nn/layer.h"
#include "zeno/nn/lora.h"
#include "zeno/nn/norm.h"
#include "zeno/nn/parameter_list.h"

namespace zeno::nn {

struct NormedLinear {
  // h is [R, C]; rstd and mean are f32 [R, 1], mean with LayerNorm only; fp8 is the workspace of the linear.
  struct Normed {
    Tensor h, rstd, mean, fp8;
    Lora::Space lora;
  };

  Norm kind = Norm::rms;
  float eps = 1e-5f;
  int norm = kAbsent, norm_bias = kAbsent, weight = kAbsent, bias = kAbsent;  // places in the parameter list
  Lora lora;

  void normalise(StreamRef stream, std::span<const Tensor> params, Tensor x, const Normed& n) const;
  void forward(StreamRef stream, std::span<const Tensor> params, Tensor x, const Normed& n, Tensor y,
               const NoiseSource& noise = {}) const;
  // Does backward need h? Not when the weight is frozen and has no adapter.
  bool needs_input(std::span<const Tensor> grads) const { return pick(grads, weight) || lora; }
  // x [rows, in] to y [rows, out].
  LayerWork work(BatchShape shape, const Parameter& matrix, DType compute, Recompute recompute) const;
  // The gradient of h takes its place. Adds args.dy, the gradient that bypassed the layer, to args.dx.
  void backward(const BackwardArgs& args, const Normed& n, Tensor dy) const;
};

}  // namespace zeno::nn
