#include "zeno/nn/attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "zeno/device/copy.h"
#include "zeno/kernels/attention.h"
#include "zeno/kernels/attention_decode.h"
#include "zeno/kernels/head_slices.h"
#include "zeno/kernels/rope.h"
#include "zeno/nn/block.h"
#include "zeno/nn/layout.h"
#include "zeno/nn/linear.h"
#include "zeno/nn/normed_linear.h"
#include "zeno/nn/parameter_list.h"

namespace zeno::nn {
namespace {

class Attention final : public Layer {
 public:
  explicit Attention(const BlockOptions& options);

  std::string name() const override { return o_.name + ".attn"; }
  std::vector<Parameter> parameters() const override { return list_.all(); }
  LayerSizes sizes(BatchShape shape, DType compute, Recompute recompute) const override;
  void forward(const ForwardArgs& args, Recompute recompute) const override;
  void backward(const BackwardArgs& args, Recompute recompute) const override;
  int parts(BatchShape shape) const override;
  Joint joint(const JointArgs& args) const override;
  LayerWork work(BatchShape shape, DType compute, Recompute recompute) const override;
  size_t cache_bytes(CacheShape shape, DType compute) const override;

 private:
  // Intermediates of forward. Which of them lie in `saved` depends on the recompute mode.
  struct Intermediates {
    NormedLinear::Normed normed;
    Tensor projected;  // [R, (H+2G)·D], qkv as the projection leaves it; usually qkv itself
    Tensor qkv;        // [R, (H+2G)·D], after q/k-norm and rope
    Tensor raw;        // [R, (H+G)·D], queries and keys before q/k-norm, for its backward
    Tensor rstd;       // f32 [R, H+G], with q/k-norm
    Tensor out;        // [R, H·D]
    Tensor lse;        // f32 [B·H, T]
    // Where ranks share sequences, of all their tokens and this rank's heads: as attention reads and writes
    // it.
    Tensor heads_qkv, heads_out;
    Tensor qkv_slices, out_slices;  // sent for it, and what comes of it
    Tensor out_fp8;
    Lora::Space out_lora;
  };
  struct Gradients {
    Tensor dout;       // [R, H·D]
    Tensor dqkv;       // [R, (H+2G)·D]
    Tensor workspace;  // of the attention kernel
    // Where ranks share sequences, as in Intermediates.
    Tensor dout_slices, dqkv_slices;
    Tensor heads_dout, heads_dqkv;
  };

  int64_t q_cols() const { return o_.heads * o_.head_dim; }
  int64_t k_cols() const { return o_.kv_heads * o_.head_dim; }
  int64_t qkv_cols() const { return q_cols() + 2 * k_cols(); }
  static bool shared(BatchShape shape) { return shape.context > 1; }
  AttentionShape kernel_shape(BatchShape shape) const;
  HeadSlices head_slices(BatchShape shape, bool keys, Tensor tokens, Tensor slices) const;
  Tensor take_lse(Layout& layout, BatchShape shape) const {
    const AttentionShape kernel = kernel_shape(shape);
    return layout.take(DType::f32, kernel.batch * kernel.heads, kernel.seq);
  }
  Tensor take_heads(Layout& layout, BatchShape shape, DType compute, bool keys) const;

  Intermediates cut_saved(Layout& saved, BatchShape shape, DType compute, Recompute recompute) const;
  void cut_forward(Intermediates& t, Layout& work, BatchShape shape, DType compute) const;
  Gradients cut_backward(Intermediates& t, Layout& work, BatchShape shape, DType compute) const;

  KvCache cut_cache(Layout& cache, CacheShape shape, DType compute) const;

  void rotate(StreamRef stream, std::span<const Tensor> params, const Batch& batch,
              const Intermediates& t) const;
  void project(const ForwardArgs& args, const Intermediates& t) const;
  void attend(const ForwardArgs& args, const Intermediates& t) const;
  void finish(const ForwardArgs& args, const Intermediates& t) const;
  void finish_backward(const BackwardArgs& args, const Intermediates& t, const Gradients& g) const;
  void attend_backward(const BackwardArgs& args, const Intermediates& t, const Gradients& g,
                       bool selective) const;
  void project_backward(const BackwardArgs& args, const Intermediates& t, const Gradients& g,
                        bool selective) const;
  void rotate_backward(const BackwardArgs& args, const Intermediates& t, Tensor dqkv) const;

  BlockOptions o_;
  ParameterList list_;
  NormedLinear qkv_;
  int q_norm_ = kAbsent, k_norm_ = kAbsent, out_ = kAbsent, out_bias_ = kAbsent;
  Lora out_lora_;
};

void check(const BlockOptions& o) {
  const auto kind = ErrorKind::data;
  require(o.kv_heads > 0 && o.heads % o.kv_heads == 0, kind,
          "[{}] kv_heads: got {}, expected a divisor of the {} query heads; check config.json", o.name,
          o.kv_heads, o.heads);
  require(o.head_dim > 0 && o.head_dim <= 256, kind,
          "[{}] head_dim: got {}, expected 1 to 256; check config.json", o.name, o.head_dim);
  require(!o.rope || o.rope->head_dim() == o.head_dim, kind,
          "[{}] rope table: got {} values per head, expected {}", o.name, o.rope ? o.rope->head_dim() : 0,
          o.head_dim);
  require(o.rope || !o.qk_norm, kind, "[{}] q/k-norm: got no rope, expected both; check config.json", o.name);
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
  if (o_.lora) list_.freeze(o_.lora->trains);
  if (o_.lora) {
    qkv_.lora = Lora(*o_.lora, Parameter(list_.all()[size_t(qkv_.weight)]), list_);
    out_lora_ = Lora(*o_.lora, Parameter(list_.all()[size_t(out_)]), list_);
  }
}

AttentionShape Attention::kernel_shape(BatchShape shape) const {
  return {.batch = shape.batch,
          .seq = shape.whole_seq(),
          .heads = o_.heads / shape.context,
          .kv_heads = std::max<int64_t>(1, o_.kv_heads / shape.context),
          .head_dim = o_.head_dim,
          .scale = float(1.0 / std::sqrt(double(o_.head_dim))),
          .window = o_.window,
          .deterministic = shape.deterministic};
}

int Attention::parts(BatchShape shape) const {
  if (!shared(shape)) return 1;
  const int64_t ranks = shape.context;
  require(
      o_.heads % ranks == 0 && (o_.kv_heads % ranks == 0 || ranks % o_.kv_heads == 0), ErrorKind::usage,
      "[{}] --context: got {} ranks for {} query heads and {} key heads, expected a number that divides the "
      "query heads, and divides the key heads or is a multiple of them",
      o_.name, ranks, o_.heads, o_.kv_heads);
  return 3;
}

HeadSlices Attention::head_slices(BatchShape shape, bool keys, Tensor tokens, Tensor slices) const {
  return {.batch = shape.batch,
          .seq = shape.seq,
          .ranks = shape.context,
          .heads = o_.heads,
          .kv_heads = keys ? o_.kv_heads : 0,
          .head_dim = o_.head_dim,
          .tokens = tokens,
          .slices = slices};
}

// Slices for, or from, all ranks, and what attention has of all tokens: both have this size.
Tensor Attention::take_heads(Layout& layout, BatchShape shape, DType compute, bool keys) const {
  const int64_t heads = head_slices(shape, keys, {}, {}).slice_heads();
  return layout.take(compute, shape.rows() * shape.context, heads * o_.head_dim);
}

// What stays from forward to backward. Rope turns qkv in place and its backward needs no input. Q/k-norm
// needs it: kept beside qkv, or instead of qkv when that is computed again.
Attention::Intermediates Attention::cut_saved(Layout& saved, BatchShape shape, DType compute,
                                              Recompute recompute) const {
  const int64_t rows = shape.rows();
  Intermediates t;
  t.normed.rstd = saved.take(DType::f32, rows, 1);
  if (o_.norm == Norm::layer) t.normed.mean = saved.take(DType::f32, rows, 1);
  if (recompute == Recompute::none) t.normed.h = saved.take(compute, rows, o_.hidden);
  if (shared(shape)) {
    t.heads_qkv = take_heads(saved, shape, compute, true);
    t.heads_out = take_heads(saved, shape, compute, false);
  } else {
    t.projected = saved.take(compute, rows, qkv_cols());
    if (!o_.qk_norm || recompute == Recompute::none) t.qkv = t.projected;
  }
  if (o_.qk_norm) {
    t.rstd = saved.take(DType::f32, rows, o_.heads + o_.kv_heads);
    const bool beside = shared(shape) || t.qkv.rows > 0;
    t.raw =
        beside ? saved.take(compute, rows, q_cols() + k_cols()) : t.projected.columns(0, q_cols() + k_cols());
  }
  t.out = saved.take(compute, rows, q_cols());
  t.lse = take_lse(saved, shape);
  qkv_.lora.cut_saved(t.normed.lora, saved, rows, compute);
  out_lora_.cut_saved(t.out_lora, saved, rows, compute);
  return t;
}

// Puts what is not saved into the workspace. Without anything saved (evaluation), q/k-norm works in place.
void Attention::cut_forward(Intermediates& t, Layout& work, BatchShape shape, DType compute) const {
  const int64_t rows = shape.rows();
  if (t.normed.rstd.rows == 0) {
    t.normed.rstd = work.take(DType::f32, rows, 1);
    t.normed.mean = work.take(DType::f32, rows, 1);
    t.rstd = work.take(DType::f32, rows, o_.heads + o_.kv_heads);
  }
  if (shared(shape) && t.heads_qkv.rows == 0) {
    t.heads_qkv = take_heads(work, shape, compute, true);
    t.heads_out = take_heads(work, shape, compute, false);
  }
  const size_t before_qkv = work.mark();
  if (t.qkv.rows == 0) t.qkv = work.take(compute, rows, qkv_cols());
  if (t.projected.rows == 0) t.projected = t.qkv;
  const size_t before_h = work.mark();
  if (t.normed.h.rows == 0) t.normed.h = work.take(compute, rows, o_.hidden);
  if (shape.fp8) t.normed.fp8 = take_fp8(work, rows, o_.hidden, qkv_cols());
  qkv_.lora.cut_rest(t.normed.lora, work, rows, compute);
  work.rewind(before_h);  // h is dead once qkv exists
  if (shared(shape)) {
    t.qkv_slices = take_heads(work, shape, compute, true);
    work.rewind(before_qkv);  // both are dead once they have been sent
    t.out_slices = take_heads(work, shape, compute, false);
  }
  if (t.out.rows == 0) {
    t.out = work.take(compute, rows, q_cols());
    t.lse = take_lse(work, shape);
  }
  if (shape.fp8) t.out_fp8 = take_fp8(work, rows, q_cols(), o_.hidden);
  out_lora_.cut_rest(t.out_lora, work, rows, compute);
}

Attention::Gradients Attention::cut_backward(Intermediates& t, Layout& work, BatchShape shape,
                                             DType compute) const {
  const int64_t rows = shape.rows();
  Gradients g;
  g.dqkv = work.take(compute, rows, qkv_cols());
  const size_t inside_attention = work.mark();
  if (shared(shape)) g.heads_dqkv = take_heads(work, shape, compute, true);
  const size_t before_dout = work.mark();
  g.dout = work.take(compute, rows, q_cols());
  const size_t before_attention = work.mark();
  if (shape.fp8) t.out_fp8 = take_fp8(work, rows, q_cols(), o_.hidden);
  out_lora_.cut_rest(t.out_lora, work, rows, compute);
  work.rewind(before_attention);
  if (shared(shape)) {
    g.dout_slices = take_heads(work, shape, compute, false);
    g.heads_dout = take_heads(work, shape, compute, false);
  } else if (t.qkv.rows == 0) {
    t.qkv = work.take(compute, rows, qkv_cols());
  }
  g.workspace = work.take(DType::u8, 1,
                          int64_t(attention_backward_workspace(shape.device, kernel_shape(shape), compute)));
  work.rewind(before_dout);
  if (shared(shape)) g.dqkv_slices = take_heads(work, shape, compute, true);
  work.rewind(inside_attention);
  if (t.normed.h.rows == 0) t.normed.h = work.take(compute, rows, o_.hidden);
  if (shape.fp8) t.normed.fp8 = take_fp8(work, rows, o_.hidden, qkv_cols());
  qkv_.lora.cut_rest(t.normed.lora, work, rows, compute);
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

// projected → qkv: q/k-norm per head, then rope.
void Attention::rotate(StreamRef stream, std::span<const Tensor> params, const Batch& batch,
                       const Intermediates& t) const {
  if (!o_.rope) return;
  rope_forward(stream, {.x = t.projected,
                        .y = t.qkv,
                        .positions = batch.positions,
                        .table = o_.rope->view(stream),
                        .q_heads = o_.heads,
                        .k_heads = o_.kv_heads,
                        .head_dim = o_.head_dim,
                        .q_weight = pick(params, q_norm_),
                        .k_weight = pick(params, k_norm_),
                        .rstd = t.rstd,
                        .raw = t.qkv.data == t.projected.data ? t.raw : Tensor(),
                        .eps = o_.norm_eps});
}

void Attention::rotate_backward(const BackwardArgs& args, const Intermediates& t, Tensor dqkv) const {
  if (!o_.rope) return;
  const Tensor dq_norm = pick(args.grads, q_norm_), dk_norm = pick(args.grads, k_norm_);
  for (const Tensor& gradient : {dq_norm, dk_norm}) {
    if (args.fresh && gradient) fill_zero_async(args.stream, gradient.data, gradient.bytes());
  }
  rope_backward(args.stream, {.dx = dqkv,
                              .positions = args.batch.positions,
                              .table = o_.rope->view(args.stream),
                              .q_heads = o_.heads,
                              .k_heads = o_.kv_heads,
                              .head_dim = o_.head_dim,
                              .x = t.raw,
                              .q_weight = pick(args.params, q_norm_),
                              .k_weight = pick(args.params, k_norm_),
                              .rstd = t.rstd,
                              .dq_weight = dq_norm,
                              .dk_weight = dk_norm});
}

KvCache Attention::cut_cache(Layout& cache, CacheShape shape, DType compute) const {
  const int64_t rows = shape.sequences * o_.kv_heads * cache_tiles(shape.capacity);
  return {.keys = cache.take(compute, rows, o_.head_dim * kCacheTile),
          .values = cache.take(compute, rows, o_.head_dim * kCacheTile)};
}

size_t Attention::cache_bytes(CacheShape shape, DType compute) const {
  Layout cache;
  cut_cache(cache, shape, compute);
  return cache.peak();
}

// Within the micro-batch, or over all that the cache has kept.
void Attention::attend(const ForwardArgs& args, const Intermediates& t) const {
  const Batch& batch = args.batch;
  if (args.cache) {
    Layout cache(args.cache);
    attention_decode(args.stream, {.shape = kernel_shape(batch.shape),
                                   .qkv = t.qkv,
                                   .positions = batch.positions,
                                   .slots = batch.slots,
                                   .cache = cut_cache(cache, batch.cache, args.x.dtype),
                                   .capacity = batch.cache.capacity,
                                   .out = t.out});
  } else {
    attention_forward(args.stream, {.shape = kernel_shape(batch.shape),
                                    .qkv = shared(batch.shape) ? t.heads_qkv : t.qkv,
                                    .doc_start = batch.doc_start,
                                    .documents = batch.documents,
                                    .out = shared(batch.shape) ? t.heads_out : t.out,
                                    .lse = t.lse});
  }
}

void Attention::project(const ForwardArgs& args, const Intermediates& t) const {
  qkv_.forward(args.stream, args.params, args.x, t.normed, t.projected, {.key = args.batch.noise});
  rotate(args.stream, args.params, args.batch, t);
  if (shared(args.batch.shape))
    pack_heads(args.stream, head_slices(args.batch.shape, true, t.qkv, t.qkv_slices));
}

void Attention::finish(const ForwardArgs& args, const Intermediates& t) const {
  if (shared(args.batch.shape))
    unpack_heads(args.stream, head_slices(args.batch.shape, false, t.out, t.out_slices));
  linear_forward(args.stream, {.x = t.out,
                               .weight = pick(args.params, out_),
                               .bias = pick(args.params, out_bias_),
                               .residual = args.x,
                               .y = args.y,
                               .fp8 = t.out_fp8});
  out_lora_.forward({args.stream, args.params, {.key = args.batch.noise}}, t.out, t.out_lora, args.y);
}

// In one part, or in three where ranks share sequences.
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

  const int last = parts(shape) - 1;
  if (args.part == 0) project(args, t);
  if (args.part == last / 2) attend(args, t);
  if (args.part == last) finish(args, t);
}

void Attention::backward(const BackwardArgs& args, Recompute recompute) const {
  const BatchShape shape = args.batch.shape;
  const DType compute = args.x.dtype;
  Layout saved(args.saved), work(args.workspace);
  Intermediates t = cut_saved(saved, shape, compute, recompute);
  const Gradients g = cut_backward(t, work, shape, compute);
  const bool selective = recompute == Recompute::selective;
  const int last = parts(shape) - 1;
  if (args.part == 0) finish_backward(args, t, g);
  if (args.part == last / 2) attend_backward(args, t, g, selective);
  if (args.part == last) project_backward(args, t, g, selective);
}

void Attention::finish_backward(const BackwardArgs& args, const Intermediates& t, const Gradients& g) const {
  const Lora::Call call{args.stream, args.params, {.key = args.batch.noise}};
  out_lora_.begin_backward(call, args.dy, t.out_lora);
  out_lora_.weight_gradients(call, args, t.out, args.dy, t.out_lora);
  linear_backward(args.stream, {.x = t.out,
                                .dy = args.dy,
                                .weight = pick(args.params, out_),
                                .dx = g.dout,
                                .dweight = pick(args.grads, out_),
                                .dbias = pick(args.grads, out_bias_),
                                .fresh = args.fresh,
                                .fp8 = t.out_fp8});
  out_lora_.add_input_gradient(call, t.out_lora, g.dout);
  if (shared(args.batch.shape))
    pack_heads(args.stream, head_slices(args.batch.shape, false, g.dout, g.dout_slices));
}

void Attention::attend_backward(const BackwardArgs& args, const Intermediates& t, const Gradients& g,
                                bool selective) const {
  const bool heads = shared(args.batch.shape);
  if (selective && o_.qk_norm && !heads) rotate(args.stream, args.params, args.batch, t);
  attention_backward(args.stream, {.shape = kernel_shape(args.batch.shape),
                                   .qkv = heads ? t.heads_qkv : t.qkv,
                                   .doc_start = args.batch.doc_start,
                                   .out = heads ? t.heads_out : t.out,
                                   .lse = t.lse,
                                   .dout = heads ? g.heads_dout : g.dout,
                                   .dqkv = heads ? g.heads_dqkv : g.dqkv,
                                   .workspace = g.workspace});
}

void Attention::project_backward(const BackwardArgs& args, const Intermediates& t, const Gradients& g,
                                 bool selective) const {
  if (shared(args.batch.shape))
    unpack_heads(args.stream, head_slices(args.batch.shape, true, g.dqkv, g.dqkv_slices));
  rotate_backward(args, t, g.dqkv);
  if (selective && qkv_.needs_input(args.grads)) qkv_.normalise(args.stream, args.params, args.x, t.normed);
  qkv_.backward(args, t.normed, g.dqkv);
}

// Attention has what is received from, and sent to, all ranks; the slices are packed before or unpacked
// after.
Joint Attention::joint(const JointArgs& args) const {
  Intermediates t;
  if (args.saved) {
    Layout saved(args.saved);
    t = cut_saved(saved, args.shape, args.compute, args.recompute);
  }
  Layout work = args.workspace ? Layout(args.workspace) : Layout();
  if (args.backward) {
    const Gradients g = cut_backward(t, work, args.shape, args.compute);
    return args.part == 0 ? Joint{g.dout_slices, g.heads_dout} : Joint{g.heads_dqkv, g.dqkv_slices};
  }
  cut_forward(t, work, args.shape, args.compute);
  return args.part == 0 ? Joint{t.qkv_slices, t.heads_qkv} : Joint{t.heads_out, t.out_slices};
}

LayerWork Attention::work(BatchShape shape, DType compute, Recompute recompute) const {
  const double rows = double(shape.rows()), q = double(q_cols()), qkv = double(qkv_cols());
  const double element = rows * double(size_of(compute));
  const bool trained = list_.all()[size_t(out_)].trainable;
  LayerWork work = qkv_.work(shape, list_.all()[size_t(qkv_.weight)], compute, recompute) +
                   work_of({rows, q, double(o_.hidden), compute, shape.fp8, trained}) +
                   out_lora_.work(rows, compute);
  const int64_t seq = shape.whole_seq();
  const double full = double(o_.window > 0 ? std::min(o_.window, seq) : seq);
  // Keys seen by all tokens of a sequence: 1, 2, … up to the window, then the window each.
  const double pairs = full * (full + 1) / 2 + (double(seq) - full) * full;
  const double scores = 2 * double(shape.batch) * pairs * q / shape.context;
  work.forward += {.attention_flops = 2 * scores, .bytes = element * (qkv + q)};
  // Backward computes the scores again.
  work.backward += {.attention_flops = 5 * scores, .bytes = element * 2 * (qkv + q)};
  if (!o_.rope) return work;
  const double turned = element * double(q_cols() + k_cols());
  const double raw = o_.qk_norm ? turned : 0;  // kept beside, and read again
  work.forward.bytes += 2 * turned + raw;
  work.backward.bytes += 2 * turned + raw;
  if (o_.qk_norm && recompute == Recompute::selective) work.backward.bytes += 2 * turned;
  return work;
}

}  // namespace

std::unique_ptr<Layer> make_attention(const BlockOptions& options) {
  return std::make_unique<Attention>(options);
}

}  // namespace zeno::nn
