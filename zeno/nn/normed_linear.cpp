#include "zeno/nn/normed_linear.h"

#include "zeno/nn/linear.h"

namespace zeno::nn {

void NormedLinear::normalise(StreamRef stream, std::span<const Tensor> params, Tensor x,
                             const Normed& n) const {
  norm_forward(stream, kind,
               {.x = x,
                .weight = pick(params, norm),
                .bias = pick(params, norm_bias),
                .y = n.h,
                .rstd = n.rstd,
                .mean = n.mean,
                .eps = eps});
}

void NormedLinear::forward(StreamRef stream, std::span<const Tensor> params, Tensor x, const Normed& n,
                           Tensor y, const NoiseSource& noise) const {
  normalise(stream, params, x, n);
  linear_forward(
      stream, {.x = n.h, .weight = pick(params, weight), .bias = pick(params, bias), .y = y, .fp8 = n.fp8});
  lora.forward({stream, params, noise}, n.h, n.lora, y);
}

LayerWork NormedLinear::work(BatchShape shape, const Parameter& matrix, DType compute,
                             Recompute recompute) const {
  const double rows = double(shape.rows()), in = double(matrix.cols), out = double(matrix.rows);
  const double norm_input = rows * in * double(size_of(compute));
  LayerWork work = work_of({rows, in, out, compute, shape.fp8, matrix.trainable}) + lora.work(rows, compute);
  work.forward.bytes += 2 * norm_input;
  work.backward.bytes += 4 * norm_input;  // x, dh and dy in, dx out
  const bool again = recompute == Recompute::selective && (matrix.trainable || lora);
  if (again) work.backward.bytes += 2 * norm_input;
  return work;
}

void NormedLinear::backward(const BackwardArgs& args, const Normed& n, Tensor dy) const {
  const Lora::Call call{args.stream, args.params, {.key = args.batch.noise}};
  const bool needs_dh = args.dx || pick(args.grads, norm) || pick(args.grads, norm_bias);
  lora.begin_backward(call, dy, n.lora);
  lora.weight_gradients(call, args, n.h, dy, n.lora);
  linear_backward(args.stream, {.x = n.h,
                                .dy = dy,
                                .weight = pick(args.params, weight),
                                .dx = needs_dh ? n.h : Tensor{},
                                .dweight = pick(args.grads, weight),
                                .dbias = pick(args.grads, bias),
                                .fresh = args.fresh,
                                .fp8 = n.fp8});
  if (!needs_dh) return;
  lora.add_input_gradient(call, n.lora, n.h);
  norm_backward(args.stream, kind,
                {.x = args.x,
                 .weight = pick(args.params, norm),
                 .rstd = n.rstd,
                 .mean = n.mean,
                 .dy = n.h,
                 .dresidual = args.dy,
                 .dx = args.dx ? args.dx : n.h,
                 .dweight = pick(args.grads, norm),
                 .dbias = pick(args.grads, norm_bias)},
                args.fresh);
}

}  // namespace zeno::nn
