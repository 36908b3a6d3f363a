#include "zeno/nn/mlp.h"

#include <algorithm>

#include "zeno/kernels/activation.h"
#include "zeno/kernels/swiglu_product.h"
#include "zeno/nn/block.h"
#include "zeno/nn/layout.h"
#include "zeno/nn/linear.h"
#include "zeno/nn/normed_linear.h"
#include "zeno/nn/parameter_list.h"

namespace zeno::nn {
namespace {

// Intermediates of forward. Which of them lie in `saved` depends on the recompute mode.
struct MlpIntermediates {
  NormedLinear::Normed normed;
  Tensor up;   // [R, U], U = 2F (gate, then up) or F
  Tensor act;  // [R, F]
  Tensor down_fp8;
  Lora::Space down_lora;
};

class Mlp final : public Layer {
 public:
  explicit Mlp(const BlockOptions& options);

  std::string name() const override { return o_.name + ".mlp"; }
  std::vector<Parameter> parameters() const override { return list_.all(); }
  LayerSizes sizes(BatchShape shape, DType compute, Recompute recompute) const override;
  void forward(const ForwardArgs& args, Recompute recompute) const override;
  void backward(const BackwardArgs& args, Recompute recompute) const override;
  LayerWork work(BatchShape shape, DType compute, Recompute recompute) const override;

 private:
  int64_t up_cols() const {
    return o_.mlp == BlockOptions::Mlp::swiglu ? 2 * o_.intermediate : o_.intermediate;
  }
  // Whether SwiGLU is all that happens between the products around it.
  bool swiglu_alone(BatchShape shape) const {
    return o_.mlp == BlockOptions::Mlp::swiglu && !o_.mlp_bias && !up_.lora && !down_lora_ && !shape.fp8;
  }
  bool fuses(BatchShape shape) const { return shape.fused_swiglu && swiglu_alone(shape); }
  bool fuses_backward(BatchShape shape) const { return fuses(shape) && o_.hidden >= kFusedBackwardDepth; }
  Gelu gelu() const { return o_.mlp == BlockOptions::Mlp::gelu_tanh ? Gelu::tanh : Gelu::exact; }

  MlpIntermediates cut_saved(Layout& saved, int64_t rows, DType compute, Recompute recompute) const;
  void cut_rest(MlpIntermediates& t, Layout& work, int64_t rows, DType compute, BatchShape shape) const;

  void run_rows(const ForwardArgs& args, int64_t first, Tensor x, Tensor y, const MlpIntermediates& t) const;
  void activate(StreamRef stream, const MlpIntermediates& t) const;
  void activate_backward(StreamRef stream, const MlpIntermediates& t, Tensor dact) const;
  void swiglu_and_down_backward(const BackwardArgs& args, const MlpIntermediates& t, LinearBackward down,
                                bool act_again) const;

  BlockOptions o_;
  ParameterList list_;
  NormedLinear up_;
  int down_ = kAbsent, down_bias_ = kAbsent;
  Lora down_lora_;
};

// Rows are independent, so a pass that keeps nothing goes through them in parts: its workspace then stays
// below what training needs anyway. Not on a GPU, where the bits of a product may depend on its number of
// rows, and the pass that recomputes takes them all.
int64_t rows_at_once(BatchShape shape) {
  if (shape.device != Device::Kind::cpu) return shape.rows();
  return std::min(shape.rows(), std::max<int64_t>(64, div_ceil<int64_t>(shape.rows(), 4)));
}

Mlp::Mlp(const BlockOptions& options) : o_(options) {
  const auto& files = o_.files;
  up_.kind = o_.norm;
  up_.eps = o_.norm_eps;
  const auto ones = Init::Kind::ones, zeros = Init::Kind::zeros;
  up_.norm = list_.vector(o_.name + ".mlp_norm.weight", o_.hidden, ones, files.mlp_norm);
  if (o_.norm == Norm::layer)
    up_.norm_bias = list_.vector(o_.name + ".mlp_norm.bias", o_.hidden, zeros, files.mlp_norm_bias);
  up_.weight = list_.matrix(o_.name + ".mlp.up.weight", up_cols(), o_.hidden, o_.init_std, files.up);
  if (o_.mlp_bias) up_.bias = list_.vector(o_.name + ".mlp.up.bias", up_cols(), zeros, files.up_bias);
  down_ = list_.matrix(o_.name + ".mlp.down.weight", o_.hidden, o_.intermediate, o_.out_init_std, files.down);
  if (o_.mlp_bias) down_bias_ = list_.vector(o_.name + ".mlp.down.bias", o_.hidden, zeros, files.down_bias);
  if (o_.lora) list_.freeze(o_.lora->trains);
  if (o_.lora) {
    up_.lora = Lora(*o_.lora, Parameter(list_.all()[size_t(up_.weight)]), list_);
    down_lora_ = Lora(*o_.lora, Parameter(list_.all()[size_t(down_)]), list_);
  }
}

MlpIntermediates Mlp::cut_saved(Layout& saved, int64_t rows, DType compute, Recompute recompute) const {
  MlpIntermediates t;
  t.normed.rstd = saved.take(DType::f32, rows, 1);
  if (o_.norm == Norm::layer) t.normed.mean = saved.take(DType::f32, rows, 1);
  t.up = saved.take(compute, rows, up_cols());
  if (recompute == Recompute::none) {
    t.normed.h = saved.take(compute, rows, o_.hidden);
    t.act = saved.take(compute, rows, o_.intermediate);
  }
  up_.lora.cut_saved(t.normed.lora, saved, rows, compute);
  down_lora_.cut_saved(t.down_lora, saved, rows, compute);
  return t;
}

// Puts what is not saved into the workspace. h and act are never needed at the same time, neither in forward
// nor in backward, and share their bytes, each with the workspaces of its linear; but a product that makes
// act itself reads h to its end.
void Mlp::cut_rest(MlpIntermediates& t, Layout& work, int64_t rows, DType compute, BatchShape shape) const {
  if (t.normed.rstd.rows == 0) {
    t.normed.rstd = work.take(DType::f32, rows, 1);
    t.normed.mean = work.take(DType::f32, rows, 1);
    t.up = work.take(compute, rows, up_cols());
  }
  const bool kept = t.normed.h.rows != 0;
  const size_t shared = work.mark();
  if (!kept) t.normed.h = work.take(compute, rows, o_.hidden);
  if (shape.fp8) t.normed.fp8 = take_fp8(work, rows, o_.hidden, up_cols());
  up_.lora.cut_rest(t.normed.lora, work, rows, compute);
  if (!fuses(shape)) work.rewind(shared);
  if (!kept) t.act = work.take(compute, rows, o_.intermediate);
  if (shape.fp8) t.down_fp8 = take_fp8(work, rows, o_.intermediate, o_.hidden);
  down_lora_.cut_rest(t.down_lora, work, rows, compute);
}

LayerSizes Mlp::sizes(BatchShape shape, DType compute, Recompute recompute) const {
  Layout evaluation;
  MlpIntermediates nothing_saved;
  cut_rest(nothing_saved, evaluation, rows_at_once(shape), compute, shape);
  if (recompute == Recompute::full) return {.saved = 0, .workspace = evaluation.peak()};

  Layout saved, work;
  MlpIntermediates t = cut_saved(saved, shape.rows(), compute, recompute);
  cut_rest(t, work, shape.rows(), compute, shape);
  return {.saved = saved.peak(), .workspace = std::max(evaluation.peak(), work.peak())};
}

void Mlp::activate(StreamRef stream, const MlpIntermediates& t) const {
  if (o_.mlp == BlockOptions::Mlp::swiglu)
    swiglu_forward(stream, t.up, t.act);
  else
    gelu_forward(stream, gelu(), t.up, t.act);
}

// The gradient of `up` takes its place.
void Mlp::activate_backward(StreamRef stream, const MlpIntermediates& t, Tensor dact) const {
  if (o_.mlp == BlockOptions::Mlp::swiglu)
    swiglu_backward(stream, t.up, dact, t.up);
  else
    gelu_backward(stream, gelu(), t.up, dact, t.up);
}

// `first` is the row of the micro-batch that x begins with.
void Mlp::run_rows(const ForwardArgs& args, int64_t first, Tensor x, Tensor y,
                   const MlpIntermediates& t) const {
  const NoiseSource noise{.key = args.batch.noise, .first_row = first};
  if (const BatchShape shape = args.batch.shape; swiglu_alone(shape)) {
    up_.normalise(args.stream, args.params, x, t.normed);
    swiglu_product_forward(args.stream, {.x = t.normed.h,
                                         .weight = pick(args.params, up_.weight),
                                         .gate_up = t.up,
                                         .y = t.act,
                                         .fused = fuses(shape)});
  } else {
    up_.forward(args.stream, args.params, x, t.normed, t.up, noise);
    activate(args.stream, t);
  }
  if (y)
    linear_forward(args.stream, {.x = t.act,
                                 .weight = pick(args.params, down_),
                                 .bias = pick(args.params, down_bias_),
                                 .residual = x,
                                 .y = y,
                                 .fp8 = t.down_fp8});
  down_lora_.forward({args.stream, args.params, noise}, t.act, t.down_lora, y);
}

void Mlp::forward(const ForwardArgs& args, Recompute recompute) const {
  const BatchShape shape = args.batch.shape;
  const int64_t rows = shape.rows();
  const DType compute = args.x.dtype;
  if (args.saved) {
    Layout saved(args.saved), work(args.workspace);
    MlpIntermediates t = cut_saved(saved, rows, compute, recompute);
    cut_rest(t, work, rows, compute, shape);
    run_rows(args, 0, args.x, args.y, t);
    return;
  }
  const int64_t step = rows_at_once(shape);
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t part = std::min(step, rows - begin);
    Layout work(args.workspace);
    MlpIntermediates t;
    cut_rest(t, work, part, compute, shape);
    run_rows(args, begin, args.x.slice(begin, part), args.y.slice(begin, part), t);
  }
}

// From the gradient of the output to that of `up`, in its place. act_again: act is not there, but comes as a
// by-product of its gradient, and its weight gradient waits for it.
void Mlp::swiglu_and_down_backward(const BackwardArgs& args, const MlpIntermediates& t, LinearBackward down,
                                   bool act_again) const {
  down.dx = {};
  if (!act_again) linear_backward(args.stream, down);
  swiglu_product_backward(args.stream, {.dy = args.dy,
                                        .weight = down.weight,
                                        .gate_up = t.up,
                                        .dact = t.act,
                                        .y = act_again ? t.act : Tensor{},
                                        .fused = fuses_backward(args.batch.shape)});
  if (act_again) linear_backward(args.stream, down);
}

void Mlp::backward(const BackwardArgs& args, Recompute recompute) const {
  const BatchShape shape = args.batch.shape;
  const DType compute = args.x.dtype;
  Layout saved(args.saved), work(args.workspace);
  MlpIntermediates t = cut_saved(saved, shape.rows(), compute, recompute);
  cut_rest(t, work, shape.rows(), compute, shape);
  const bool selective = recompute == Recompute::selective;

  LinearBackward down{.x = t.act,
                      .dy = args.dy,
                      .weight = pick(args.params, down_),
                      .dx = t.act,
                      .dweight = pick(args.grads, down_),
                      .dbias = pick(args.grads, down_bias_),
                      .fresh = args.fresh,
                      .fp8 = t.down_fp8};
  const Lora::Call call{args.stream, args.params, {.key = args.batch.noise}};
  down_lora_.begin_backward(call, args.dy, t.down_lora);
  if (swiglu_alone(shape)) {
    swiglu_and_down_backward(args, t, down, selective);
  } else if (selective && o_.mlp == BlockOptions::Mlp::swiglu && !shape.fp8) {
    // The same with what an adapter adds in between.
    linear_backward(args.stream, {.dy = args.dy, .weight = down.weight, .dx = t.act});
    down_lora_.add_input_gradient(call, t.down_lora, t.act);
    swiglu_backward(args.stream, t.up, t.act, t.up, t.act);
    down.dx = {};
    linear_backward(args.stream, down);
    down_lora_.weight_gradients(call, args, t.act, args.dy, t.down_lora);
  } else {
    // Gradients of act and h take their places, which the weight gradients were the last to read.
    if (selective && (down.dweight || down_lora_)) activate(args.stream, t);
    down_lora_.weight_gradients(call, args, t.act, args.dy, t.down_lora);
    linear_backward(args.stream, down);
    down_lora_.add_input_gradient(call, t.down_lora, t.act);
    activate_backward(args.stream, t, t.act);
  }
  if (selective && up_.needs_input(args.grads)) up_.normalise(args.stream, args.params, args.x, t.normed);
  up_.backward(args, t.normed, t.up);
}

LayerWork Mlp::work(BatchShape shape, DType compute, Recompute recompute) const {
  const double rows = double(shape.rows()), up = double(up_cols()), act = double(o_.intermediate);
  const double element = rows * double(size_of(compute));
  const bool trained = list_.all()[size_t(down_)].trainable;
  const LayerWork down = work_of({rows, act, double(o_.hidden), compute, shape.fp8, trained});
  LayerWork work = up_.work(shape, list_.all()[size_t(up_.weight)], compute, recompute) + down +
                   down_lora_.work(rows, compute);
  work.last = down.forward;
  // A product that has the activation in it reads `up` not at all in forward, and never writes dact.
  work.forward.bytes += element * (fuses(shape) ? act : up + act);
  work.backward.bytes += element * (fuses_backward(shape) ? 2 * up - act : 2 * up + act);
  if (recompute == Recompute::selective && (trained || down_lora_)) {
    // Usually act comes again with its gradient.
    const bool beside = o_.mlp == BlockOptions::Mlp::swiglu && !shape.fp8;
    work.backward.bytes += element * (beside ? act : up + act);
  }
  return work;
}

}  // namespace

std::unique_ptr<Layer> make_mlp(const BlockOptions& options) { return std::make_unique<Mlp>(options); }

}  // namespace zeno::nn
