#include "zeno/nn/lm_head.h"

#include <algorithm>
#include <utility>

#include "zeno/device/copy.h"
#include "zeno/kernels/cross_entropy.h"
#include "zeno/kernels/matmul.h"
#include "zeno/nn/layout.h"
#include "zeno/nn/linear.h"
#include "zeno/nn/parameter_list.h"

namespace zeno::nn {
namespace {

// How many rows of logits exist at once. On the CPU they should stay in the cache. On a GPU they should be
// many: every chunk reads and writes the whole weight gradient; and a multiple of the tiles that products are
// cut into.
struct ChunkRule {
  int64_t bytes, step, least;
};
constexpr ChunkRule rule_of(Device::Kind device) {
  if (device == Device::Kind::cpu) return {int64_t(32) << 20, 16, 64};
  return {int64_t(1216) << 20, 256, 256};
}

// Legend: R rows of the micro-batch, n ≤ R of them with a target, r ≤ n in one chunk.
class LmHead final : public LossLayer {
 public:
  explicit LmHead(LmHeadOptions options);

  std::string name() const override { return "head"; }
  std::vector<Parameter> parameters() const override { return list_.all(); }
  size_t workspace(BatchShape shape, DType compute) const override;
  void run(const LossArgs& args) const override;
  size_t logits_workspace(int64_t rows, DType compute) const override;
  void logits(const LogitsArgs& args) const override;
  bool writes_gradients() const override { return true; }
  LayerWork work(BatchShape shape, DType compute) const override;

 private:
  struct Scratch {
    Tensor x;           // [n, C], rows with a target
    Tensor targets;     // i32 [n, 1]
    Tensor h;           // [r, C], norm(x), then its gradient, then that of x
    Tensor rstd, mean;  // f32 [r, 1]
    Tensor logits;      // [r, V], in the compute dtype, like every activation
  };

  Scratch cut(Layout& work, BatchShape shape, int64_t valid, DType compute) const;
  Scratch cut_normed(Layout& work, int64_t rows, DType compute) const;
  int64_t chunk_rows(BatchShape shape, DType compute) const;
  // Loss (and gradient) of the valid rows [begin, begin + scratch rows).
  void run_chunk(const LossArgs& args, const Scratch& all, int64_t begin, int64_t rows) const;

  LmHeadOptions o_;
  ParameterList list_;
  int norm_ = kAbsent, norm_bias_ = kAbsent, weight_ = kAbsent;
};

LmHead::LmHead(LmHeadOptions options) : o_(std::move(options)) {
  norm_ = list_.vector("final_norm.weight", o_.hidden, Init::Kind::ones, o_.norm_files);
  if (o_.norm == Norm::layer)
    norm_bias_ = list_.vector("final_norm.bias", o_.hidden, Init::Kind::zeros, o_.norm_bias_files);
  weight_ = list_.matrix(o_.weight_name, o_.vocab, o_.hidden, o_.init_std, o_.weight_files);
  if (o_.lora) list_.freeze(o_.lora->trains);
}

// Chunks of equal size, as few as the rule allows. Depends on the shape, not on how many rows are valid, so
// that the workspace for fewer of them is never larger.
int64_t LmHead::chunk_rows(BatchShape shape, DType compute) const {
  const ChunkRule rule = rule_of(shape.device);
  const int64_t fitting = rule.bytes / int64_t(size_of(compute)) / o_.vocab / rule.step * rule.step;
  const int64_t chunks = div_ceil(shape.rows(), std::max(rule.least, fitting));
  return round_up(div_ceil(shape.rows(), chunks), rule.step);
}

LayerWork LmHead::work(BatchShape shape, DType compute) const {
  const double hidden = double(o_.hidden), vocab = double(o_.vocab);
  const int64_t chunk = chunk_rows(shape, compute), chunks = div_ceil(shape.rows(), chunk);
  const bool trained = list_.all()[size_t(weight_)].trainable;
  const double rows = double(shape.rows()), element = rows * double(size_of(compute));
  const LayerWork part = work_of({rows / double(chunks), hidden, vocab, compute, false, trained});
  LayerWork work;
  for (int64_t i = 0; i < chunks; ++i) work += part;
  // Rows with a target picked, norm, cross entropy in place; norm, rows put back, the others cleared.
  work.forward.bytes += element * (4 * hidden + 2 * vocab);
  work.backward.bytes += element * 6 * hidden;
  return work;
}

LmHead::Scratch LmHead::cut(Layout& work, BatchShape shape, int64_t valid, DType compute) const {
  const int64_t rows = valid, chunk = std::min(valid, chunk_rows(shape, compute));
  Scratch s;
  s.x = work.take(compute, rows, o_.hidden);
  s.targets = work.take(DType::i32, rows, 1);
  s.h = work.take(compute, chunk, o_.hidden);
  s.rstd = work.take(DType::f32, chunk, 1);
  s.mean = work.take(DType::f32, chunk, 1);
  s.logits = work.take(compute, chunk, o_.vocab);
  return s;
}

LmHead::Scratch LmHead::cut_normed(Layout& work, int64_t rows, DType compute) const {
  Scratch s;
  s.h = work.take(compute, rows, o_.hidden);
  s.rstd = work.take(DType::f32, rows, 1);
  s.mean = work.take(DType::f32, rows, 1);
  return s;
}

size_t LmHead::workspace(BatchShape shape, DType compute) const {
  Layout work;
  cut(work, shape, shape.rows(), compute);
  return work.peak();
}

void LmHead::run(const LossArgs& args) const {
  const int64_t n = args.batch.valid_count;
  Layout work(args.workspace);
  const Scratch s = cut(work, args.batch.shape, n, args.x.dtype);
  if (n > 0) {
    const Tensor& targets = args.batch.targets;
    const Tensor index = args.batch.valid_rows.columns(0, n);
    gather_rows(args.stream, args.x, index, s.x);
    gather_rows(args.stream, {targets.data, targets.dtype, targets.count(), 1}, index, s.targets);
  }
  // x has been read: dx may take its place.
  if (args.dx) fill_zero_async(args.stream, args.dx.data, args.dx.bytes());
  for (const Tensor& gradient : args.grads) {
    if (args.fresh && n == 0 && gradient) fill_zero_async(args.stream, gradient.data, gradient.bytes());
  }
  for (int64_t begin = 0; begin < n; begin += s.h.rows)
    run_chunk(args, s, begin, std::min(s.h.rows, n - begin));
}

void LmHead::run_chunk(const LossArgs& args, const Scratch& s, int64_t begin, int64_t rows) const {
  const bool training = !args.grads.empty(), fresh = args.fresh && begin == 0;
  const Tensor x = s.x.slice(begin, rows), h = s.h.slice(0, rows), logits = s.logits.slice(0, rows);
  const Tensor rstd = s.rstd.slice(0, rows), mean = s.mean.slice(0, rows),
               weight = pick(args.params, weight_);
  norm_forward(args.stream, o_.norm,
               {.x = x,
                .weight = pick(args.params, norm_),
                .bias = pick(args.params, norm_bias_),
                .y = h,
                .rstd = rstd,
                .mean = mean,
                .eps = o_.norm_eps});
  matmul(args.stream, {.a = h, .b = weight, .c = logits, .transpose_b = true});
  cross_entropy(args.stream, {.logits = logits,
                              .targets = {s.targets.slice(begin, rows).data, DType::i32, 1, rows},
                              .losses = args.losses.columns(begin, rows),
                              .hits = args.hits ? args.hits.columns(begin, rows) : Tensor{},
                              .grad_scale = training ? args.grad_scale : 0.0f});
  if (!training) return;
  linear_backward(args.stream, {.x = h,
                                .dy = logits,
                                .weight = weight,
                                .dx = h,
                                .dweight = pick(args.grads, weight_),
                                .fresh = fresh});
  norm_backward(args.stream, o_.norm,
                {.x = x,
                 .weight = pick(args.params, norm_),
                 .rstd = rstd,
                 .mean = mean,
                 .dy = h,
                 .dx = h,
                 .dweight = pick(args.grads, norm_),
                 .dbias = pick(args.grads, norm_bias_)},
                fresh);
  scatter_rows(args.stream, h, args.batch.valid_rows.columns(begin, rows), args.dx);
}

size_t LmHead::logits_workspace(int64_t rows, DType compute) const {
  Layout work;
  cut_normed(work, rows, compute);
  return work.peak();
}

void LmHead::logits(const LogitsArgs& args) const {
  Layout work(args.workspace);
  const Scratch s = cut_normed(work, args.x.rows, args.x.dtype);
  norm_forward(args.stream, o_.norm,
               {.x = args.x,
                .weight = pick(args.params, norm_),
                .bias = pick(args.params, norm_bias_),
                .y = s.h,
                .rstd = s.rstd,
                .mean = s.mean,
                .eps = o_.norm_eps});
  linear_forward(args.stream, {.x = s.h, .weight = pick(args.params, weight_), .y = args.logits});
}

}  // namespace

std::unique_ptr<LossLayer> make_lm_head(LmHeadOptions options) {
  return std::make_unique<LmHead>(std::move(options));
}

}  // namespace zeno::nn
