#include "zeno/nn/embedding.h"

#include <cmath>
#include <utility>

#include "zeno/device/copy.h"
#include "zeno/kernels/embedding.h"
#include "zeno/kernels/noise.h"
#include "zeno/nn/parameter_list.h"

namespace zeno::nn {
namespace {

class Embedding final : public Layer {
 public:
  explicit Embedding(EmbeddingOptions options) : name_(std::move(options.name)) {
    table_ = list_.matrix(name_ + ".weight", options.vocab, options.hidden, options.init_std,
                          std::move(options.table));
    if (options.positions > 0)
      positions_ = list_.matrix(name_ + ".positions", options.positions, options.hidden, options.init_std,
                                std::move(options.position_table));
    sparse_ = !options.tied;
    neftune_alpha_ = options.neftune_alpha;
    if (options.lora) list_.freeze(options.lora->trains);
  }

  std::string name() const override { return name_; }
  std::vector<Parameter> parameters() const override {
    std::vector<Parameter> all = list_.all();
    all[size_t(table_)].sparse_rows = sparse_;
    return all;
  }
  LayerSizes sizes(BatchShape, DType, Recompute) const override { return {}; }

  void forward(const ForwardArgs& args, Recompute) const override {
    embedding_forward(args.stream, {.tokens = args.batch.tokens,
                                    .positions = args.batch.positions,
                                    .table = pick(args.params, table_),
                                    .position_table = pick(args.params, positions_),
                                    .y = args.y});
    if (neftune_alpha_ == 0 || !args.batch.noise) return;
    // T is the length of a sequence, packed or padded, as in transformers.
    const double values = double(args.batch.shape.seq) * double(args.y.cols);
    add_uniform_noise(args.stream, {.y = args.y,
                                    .noise = {.key = args.batch.noise, .site = hash_name(name_)},
                                    .size = float(neftune_alpha_ / std::sqrt(values))});
  }

  void backward(const BackwardArgs& args, Recompute) const override {
    const Tensor dtable = pick(args.grads, table_), dpositions = pick(args.grads, positions_);
    for (const Tensor& table : {dtable, dpositions}) {
      if (args.fresh && table) fill_zero_async(args.stream, table.data, table.bytes());
    }
    if (dtable) embedding_backward(args.stream, args.batch.tokens, args.dy, dtable);
    if (dpositions) embedding_backward(args.stream, args.batch.positions, args.dy, dpositions);
  }

  LayerWork work(BatchShape shape, DType compute, Recompute) const override {
    const Parameter& table = list_.all()[size_t(table_)];
    const double moved = double(shape.rows() * table.cols) * double(size_of(compute));
    const double tables = positions_ == kAbsent ? 1 : 2;
    LayerWork work{.forward = {.bytes = (1 + tables) * moved}};
    // A table that is not the head's too is cleared first.
    if (table.trainable)
      work.backward = {.bytes = 3 * tables * moved, .gradients = sparse_ ? double(table.count()) : 0};
    return work;
  }
  bool backward_needs_params() const override { return false; }
  bool writes_gradients() const override { return true; }

 private:
  std::string name_;
  ParameterList list_;
  int table_ = kAbsent, positions_ = kAbsent;
  bool sparse_ = false;
  double neftune_alpha_ = 0;
};

}  // namespace

std::unique_ptr<Layer> make_embedding(EmbeddingOptions options) {
  return std::make_unique<Embedding>(std::move(options));
}

}  // namespace zeno::nn
