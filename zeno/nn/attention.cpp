#include "zeno/nn/attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "zeno/device/copy.h"
#include "zeno/kernels/attention.h"
#include "zeno/kernels/rope.h"
#include "zeno/nn/block.h"
#include "zeno/nn/layout.h"
#include "zeno/nn/linear.h"
#include "zeno/nn/normed_linear.h"
#include "zeno/nn/parameter_list.h"

namespace zeno::nn {
namespace {

// Intermediates of forward. Which of them lie in `saved` depends on the recompute mode.
struct Intermediates {
  NormedLinear::Normed normed;
  Tensor raw;             // [R, (H+2G)·D], qkv before q/k-norm; the same as qkv without q/k-norm
  Tensor q_rstd, k_rstd;  // f32 [R, H] and [R, G], with q/k-norm
  Tensor qkv;             // [R, (H+2G)·D], as attention reads it
  Tensor out;             // [R, H·D]
  Tensor lse;             // f32 [B·H, T]
  Tensor out_fp8;
};

class Attention final : public Layer {
 public:
  explicit Attention(const BlockOptions& options);

  std::string name() const override { return o_.name + ".attn"; }
  std::vector<Parameter> parameters() const override { return list_.all(); }
  LayerSizes sizes(BatchShape shape, DType compute, Recompute recompute) const override;
  void forward(const ForwardArgs& args, Recompute recompute) const override;
  void backward(const BackwardArgs& args, Recompute recompute) const override;
  double forward_flops(BatchShape shape) const override;

 private:
  struct Gradients {
    Tensor dout;       // [R, H·D]
    Tensor dqkv;       // [R, (H+2G)·D]
    Tensor workspace;  // of the attention kernel
  };

  int64_t q_cols() const { return o_.heads * o_.head_dim; }
  int64_t k_cols() const { return o_.kv_heads * o_.head_dim; }
  int64_t qkv_cols() const { return q_cols() + 2 * k_cols(); }
  AttentionShape kernel_shape(BatchShape shape) const;

  Intermediates cut_saved(Layout& saved, BatchShape shape, DType compute, Recompute recompute) const;
  void cut_forward(Intermediates& t, Layout& work, BatchShape shape, DType compute) const;
  Gradients cut_backward(Intermediates& t, Layout& work, BatchShape shape, DType compute) const;

  void rotate(StreamRef stream, std::span<const Tensor> params, const Batch& batch,
              const Intermediates& t) const;
  void rotate_backward(const BackwardArgs& args, const Intermediates& t, Tensor dqkv) const;

  BlockOptions o_;
  ParameterList list_;
  NormedLinear qkv_;
  int q_norm_ = kAbsent, k_norm_ = kAbsent, out_ = kAbsent, out_bias_ = kAbsent;
};

void check(const BlockOptions& o) {
  const auto kind = ErrorKind::data;
  require(o.kv_heads > 0 && o.heads % o.kv_heads == 0, kind,
          "[{}] kv_heads: got {}, expected a divisor of the {} query heads; check config.json", o.name,
          o.kv_heads, o.heads);
  require(o.head_dim > 0 && o.head_dim % 8 == 0 && o.head_dim <= 256, kind,
          "[{}] head_dim: got {}, expected a multiple of 8 up to 256; check config.json", o.name, o.head_dim);
  require(!o.rope || o.rope->head_dim() == o.head_dim, kind,
          "[{}] rope table: got {} values per head, expected {}", o.name, o.rope ? o.rope->head_dim() : 0,
          o.head_dim);
}

Attention::Attention(const BlockOptions& options) : o_(options) {
  check(o_);
  const auto& files = o_.files;
  qkv_.kind = o_.norm;
  qkv_.eps = o_.norm_eps;
  const auto ones = Init::Kind::ones, zeros = Init::Kind::zeros;
  qkv_.norm = list_.vector(o_.name + ".attn_norm.weight", o_.hidden, ones, files.attn_norm);
  if (o_.norm == Norm::layer)
    qkv_.norm_bias = list_.vector(o_.name + ".attn_norm.bias", o_.hidden, zeros, files.attn_norm_bias);
  qkv_.weight = list_.matrix(o_.name + ".attn.qkv.weight", qkv_cols(), o_.hidden, o_.init_std, files.qkv);
  if (o_.qkv_bias) qkv_.bias = list_.vector(o_.name + ".attn.qkv.bias", qkv_cols(), zeros, files.qkv_bias);
  if (o_.qk_norm) {
    q_norm_ = list_.vector(o_.name + ".attn.q_norm.weight", o_.head_dim, ones, files.q_norm);
    k_norm_ = list_.vector(o_.name + ".attn.k_norm.weight", o_.head_dim, ones, files.k_norm);
  }
  out_ = list_.matrix(o_.name + ".attn.out.weight", o_.hidden, q_cols(), o_.out_init_std, files.out);
  if (o_.out_bias) out_bias_ = list_.vector(o_.name + ".attn.out.bias", o_.hidden, zeros, files.out_bias);
}

AttentionShape Attention::kernel_shape(BatchShape shape) const {
  return {.batch = shape.batch,
          .seq = shape.seq,
          .heads = o_.heads,
          .kv_heads = o_.kv_heads,
          .head_dim = o_.head_dim,
          .scale = float(1.0 / std::sqrt(double(o_.head_dim))),
          .window = o_.window,
          .deterministic = shape.deterministic};
}

// What stays from forward to backward. Without q/k-norm, rope turns qkv in place and its backward needs no
// input, so one copy of qkv serves both modes.
Intermediates Attention::cut_saved(Layout& saved, BatchShape shape, DType compute,
                                   Recompute recompute) const {
  const int64_t rows = shape.rows();
  Intermediates t;
  t.normed.rstd = saved.take(DType::f32, rows, 1);
  if (o_.norm == Norm::layer) t.normed.mean = saved.take(DType::f32, rows, 1);
  if (recompute == Recompute::none) t.normed.h = saved.take(compute, rows, o_.hidden);
  t.raw = saved.take(compute, rows, qkv_cols());
  if (o_.qk_norm) {
    t.q_rstd = saved.take(DType::f32, rows, o_.heads);
    t.k_rstd = saved.take(DType::f32, rows, o_.kv_heads);
    if (recompute == Recompute::none) t.qkv = saved.take(compute, rows, qkv_cols());
  } else {
    t.qkv = t.raw;
  }
  t.out = saved.take(compute, rows, q_cols());
  t.lse = saved.take(DType::f32, shape.batch * o_.heads, shape.seq);
  return t;
}

// Puts what is not saved into the workspace. Without anything saved (evaluation), q/k-norm works in place.
void Attention::cut_forward(Intermediates& t, Layout& work, BatchShape shape, DType compute) const {
  const int64_t rows = shape.rows();
  if (t.normed.rstd.rows == 0) {
    t.normed.rstd = work.take(DType::f32, rows, 1);
    t.normed.mean = work.take(DType::f32, rows, 1);
    t.q_rstd = work.take(DType::f32, rows, o_.heads);
    t.k_rstd = work.take(DType::f32, rows, o_.kv_heads);
  }
  if (t.qkv.rows == 0) t.qkv = work.take(compute, rows, qkv_cols());
  if (t.raw.rows == 0) t.raw = t.qkv;
  const size_t before_h = work.mark();
  if (t.normed.h.rows == 0) t.normed.h = work.take(compute, rows, o_.hidden);
  if (shape.fp8) t.normed.fp8 = take_fp8(work, rows, o_.hidden, qkv_cols());
  work.rewind(before_h);  // h is dead once qkv exists
  if (t.out.rows == 0) {
    t.out = work.take(compute, rows, q_cols());
    t.lse = work.take(DType::f32, shape.batch * o_.heads, shape.seq);
  }
  if (shape.fp8) t.out_fp8 = take_fp8(work, rows, q_cols(), o_.hidden);
}

Attention::Gradients Attention::cut_backward(Intermediates& t, Layout& work, BatchShape shape,
                                             DType compute) const {
  const int64_t rows = shape.rows();
  Gradients g;
  g.dqkv = work.take(compute, rows, qkv_cols());
  const size_t inside_attention = work.mark();
  g.dout = work.take(compute, rows, q_cols());
  const size_t before_attention = work.mark();
  if (shape.fp8) t.out_fp8 = take_fp8(work, rows, q_cols(), o_.hidden);
  work.rewind(before_attention);
  if (t.qkv.rows == 0) t.qkv = work.take(compute, rows, qkv_cols());
  g.workspace = work.take(DType::u8, 1,
                          int64_t(attention_backward_workspace(shape.device, kernel_shape(shape), compute)));
  work.rewind(inside_attention);
  if (t.normed.h.rows == 0) t.normed.h = work.take(compute, rows, o_.hidden);
  if (shape.fp8) t.normed.fp8 = take_fp8(work, rows, o_.hidden, qkv_cols());
  return g;
}

LayerSizes Attention::sizes(BatchShape shape, DType compute, Recompute recompute) const {
  Layout evaluation;
  Intermediates nothing_saved;
  cut_forward(nothing_saved, evaluation, shape, compute);
  if (recompute == Recompute::full) return {.saved = 0, .workspace = evaluation.peak()};

  Layout saved, forward, backward;
  const Intermediates kept = cut_saved(saved, shape, compute, recompute);
  Intermediates t = kept;
  cut_forward(t, forward, shape, compute);
  t = kept;
  cut_backward(t, backward, shape, compute);
  return {.saved = saved.peak(), .workspace = std::max({evaluation.peak(), forward.peak(), backward.peak()})};
}

// raw → qkv: q/k-norm per head, then rope.
void Attention::rotate(StreamRef stream, std::span<const Tensor> params, const Batch& batch,
                       const Intermediates& t) const {
  if (o_.qk_norm) {
    // Values pass unchanged; one contiguous copy is cheaper than a kernel of its own.
    if (t.qkv.data != t.raw.data) copy_async(stream, t.qkv.data, t.raw.data, t.raw.bytes());
    rmsnorm_forward(stream, {.x = t.raw.columns(0, q_cols()),
                             .weight = pick(params, q_norm_),
                             .y = t.qkv.columns(0, q_cols()),
                             .rstd = t.q_rstd,
                             .eps = o_.norm_eps,
                             .inner = o_.heads});
    rmsnorm_forward(stream, {.x = t.raw.columns(q_cols(), k_cols()),
                             .weight = pick(params, k_norm_),
                             .y = t.qkv.columns(q_cols(), k_cols()),
                             .rstd = t.k_rstd,
                             .eps = o_.norm_eps,
                             .inner = o_.kv_heads});
  }
  if (o_.rope)
    rope(stream, {.x = t.qkv.columns(0, q_cols() + k_cols()),
                  .positions = batch.positions,
                  .table = o_.rope->view(stream),
                  .head_dim = o_.head_dim});
}

void Attention::rotate_backward(const BackwardArgs& args, const Intermediates& t, Tensor dqkv) const {
  if (o_.rope)
    rope(args.stream, {.x = dqkv.columns(0, q_cols() + k_cols()),
                       .positions = args.batch.positions,
                       .table = o_.rope->view(args.stream),
                       .head_dim = o_.head_dim,
                       .inverse = true});
  if (!o_.qk_norm) return;
  const auto head_norm = [&](int64_t begin, int64_t cols, int weight, Tensor rstd, int64_t heads) {
    const Tensor d = dqkv.columns(begin, cols);
    norm_backward(args.stream, Norm::rms,
                  {.x = t.raw.columns(begin, cols),
                   .weight = pick(args.params, weight),
                   .rstd = rstd,
                   .dy = d,
                   .dx = d,
                   .dweight = pick(args.grads, weight),
                   .inner = heads},
                  args.fresh);
  };
  head_norm(0, q_cols(), q_norm_, t.q_rstd, o_.heads);
  head_norm(q_cols(), k_cols(), k_norm_, t.k_rstd, o_.kv_heads);
}

void Attention::forward(const ForwardArgs& args, Recompute recompute) const {
  const BatchShape shape = args.batch.shape;
  const DType compute = args.x.dtype;
  Intermediates t;
  if (args.saved) {
    Layout saved(args.saved);
    t = cut_saved(saved, shape, compute, recompute);
  }
  Layout work(args.workspace);
  cut_forward(t, work, shape, compute);

  qkv_.forward(args.stream, args.params, args.x, t.normed, t.raw);
  rotate(args.stream, args.params, args.batch, t);
  attention_forward(args.stream, {.shape = kernel_shape(shape),
                                  .qkv = t.qkv,
                                  .doc_start = args.batch.doc_start,
                                  .documents = args.batch.documents,
                                  .out = t.out,
                                  .lse = t.lse});
  linear_forward(args.stream, {.x = t.out,
                               .weight = pick(args.params, out_),
                               .bias = pick(args.params, out_bias_),
                               .residual = args.x,
                               .y = args.y,
                               .fp8 = t.out_fp8});
}

void Attention::backward(const BackwardArgs& args, Recompute recompute) const {
  const BatchShape shape = args.batch.shape;
  const DType compute = args.x.dtype;
  Layout saved(args.saved), work(args.workspace);
  Intermediates t = cut_saved(saved, shape, compute, recompute);
  const bool selective = recompute == Recompute::selective;
  const Gradients g = cut_backward(t, work, shape, compute);

  linear_backward(args.stream, {.x = t.out,
                                .dy = args.dy,
                                .weight = pick(args.params, out_),
                                .dx = g.dout,
                                .dweight = pick(args.grads, out_),
                                .dbias = pick(args.grads, out_bias_),
                                .fresh = args.fresh,
                                .fp8 = t.out_fp8});
  if (selective && o_.qk_norm) rotate(args.stream, args.params, args.batch, t);
  attention_backward(args.stream, {.shape = kernel_shape(shape),
                                   .qkv = t.qkv,
                                   .doc_start = args.batch.doc_start,
                                   .out = t.out,
                                   .lse = t.lse,
                                   .dout = g.dout,
                                   .dqkv = g.dqkv,
                                   .workspace = g.workspace});
  rotate_backward(args, t, g.dqkv);
  if (selective && pick(args.grads, qkv_.weight)) qkv_.normalise(args.stream, args.params, args.x, t.normed);
  qkv_.backward(args, t.normed, g.dqkv);
}

double Attention::forward_flops(BatchShape shape) const {
  const double rows = double(shape.rows());
  const double full = double(o_.window > 0 ? std::min(o_.window, shape.seq) : shape.seq);
  // Keys seen by all tokens of a sequence: 1, 2, … up to the window, then the window each.
  const double pairs = full * (full + 1) / 2 + (double(shape.seq) - full) * full;
  const double projections = 2 * rows * double(o_.hidden) * double(qkv_cols() + q_cols());
  return projections + 4 * double(shape.batch) * pairs * double(q_cols());
}

}  // namespace

std::unique_ptr<Layer> make_attention(const BlockOptions& options) {
  return std::make_unique<Attention>(options);
}

}  // namespace zeno::nn
