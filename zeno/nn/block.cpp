#include "zeno/nn/block.h"

#include <algorithm>
#include <utility>

#include "zeno/nn/attention.h"
#include "zeno/nn/layout.h"
#include "zeno/nn/mlp.h"

namespace zeno::nn {
namespace {

// Two residual layers in a row. What lies between them is saved in every mode: it is the input of the second.
class Block final : public Layer {
 public:
  explicit Block(BlockOptions options) : name_(std::move(options.name)) {
    options.name = name_;
    attention_ = make_attention(options);
    mlp_ = make_mlp(options);
    hidden_ = options.hidden;
    attention_parameters_ = attention_->parameters().size();
  }

  std::string name() const override { return name_; }
  std::vector<Parameter> parameters() const override;
  LayerSizes sizes(BatchShape shape, DType compute, Recompute recompute) const override;
  void forward(const ForwardArgs& args, Recompute recompute) const override;
  void backward(const BackwardArgs& args, Recompute recompute) const override;
  bool writes_gradients() const override { return true; }
  LayerWork work(BatchShape shape, DType compute, Recompute recompute) const override {
    return attention_->work(shape, compute, recompute) + mlp_->work(shape, compute, recompute);
  }
  int parts(BatchShape shape) const override { return attention_->parts(shape); }
  Joint joint(const JointArgs& args) const override;
  size_t cache_bytes(CacheShape shape, DType compute) const override {
    return attention_->cache_bytes(shape, compute);
  }

 private:
  struct Saved {
    Tensor middle;          // [R, C], x + attention(x)
    Tensor attention, mlp;  // u8, their own
  };

  Saved cut_saved(Layout& saved, BatchShape shape, DType compute, Recompute recompute) const;
  // Where the sum after attention goes in a pass that keeps nothing. On a CPU it grows in the output. On a
  // GPU a product with its residual in place may have other bits than one without, and so needs a place of
  // its own.
  Tensor cut_middle(Layout& work, BatchShape shape, DType compute) const {
    if (shape.device == Device::Kind::cpu) return {};
    return work.take(compute, shape.rows(), hidden_);
  }

  std::string name_;
  int64_t hidden_ = 0;
  size_t attention_parameters_ = 0;
  std::unique_ptr<Layer> attention_, mlp_;
};

std::vector<Parameter> Block::parameters() const {
  std::vector<Parameter> all = attention_->parameters();
  for (Parameter& p : mlp_->parameters()) all.push_back(std::move(p));
  return all;
}

Block::Saved Block::cut_saved(Layout& saved, BatchShape shape, DType compute, Recompute recompute) const {
  Saved s;
  s.middle = saved.take(compute, shape.rows(), hidden_);
  s.attention = saved.take(DType::u8, 1, int64_t(attention_->sizes(shape, compute, recompute).saved));
  s.mlp = saved.take(DType::u8, 1, int64_t(mlp_->sizes(shape, compute, recompute).saved));
  return s;
}

LayerSizes Block::sizes(BatchShape shape, DType compute, Recompute recompute) const {
  Layout work, saved;
  cut_middle(work, shape, compute);
  work.take(DType::u8, 1,
            int64_t(std::max(attention_->sizes(shape, compute, recompute).workspace,
                             mlp_->sizes(shape, compute, recompute).workspace)));
  if (recompute != Recompute::full) cut_saved(saved, shape, compute, recompute);
  return {.saved = saved.peak(), .workspace = work.peak()};
}

void Block::forward(const ForwardArgs& args, Recompute recompute) const {
  ForwardArgs attention = args, mlp = args;
  attention.params = args.params.first(attention_parameters_);
  mlp.params = args.params.subspan(attention_parameters_);
  Tensor middle = args.y;
  if (!args.saved && args.batch.shape.device != Device::Kind::cpu) {
    Layout work(args.workspace);
    middle = cut_middle(work, args.batch.shape, args.x.dtype);
    const int64_t used = int64_t(work.mark());
    attention.workspace = mlp.workspace = args.workspace.columns(used, args.workspace.cols - used);
  }
  if (args.saved) {
    Layout layout(args.saved);
    const Saved saved = cut_saved(layout, args.batch.shape, args.x.dtype, recompute);
    middle = saved.middle;
    attention.saved = saved.attention;
    mlp.saved = saved.mlp;
  }
  attention.y = middle;
  mlp.x = middle;
  attention_->forward(attention, recompute);
  mlp.part = 0;
  if (args.part + 1 == parts(args.batch.shape)) mlp_->forward(mlp, recompute);
}

// Joints are attention's, and where it has its memory.
Joint Block::joint(const JointArgs& args) const {
  JointArgs attention = args;
  if (args.saved) {
    Layout layout(args.saved);
    attention.saved = cut_saved(layout, args.shape, args.compute, args.recompute).attention;
  } else if (args.workspace) {
    Layout work(args.workspace);
    cut_middle(work, args.shape, args.compute);
    const int64_t used = int64_t(work.mark());
    attention.workspace = args.workspace.columns(used, args.workspace.cols - used);
  }
  return attention_->joint(attention);
}

void Block::backward(const BackwardArgs& args, Recompute recompute) const {
  Layout layout(args.saved);
  const Saved saved = cut_saved(layout, args.batch.shape, args.x.dtype, recompute);
  BackwardArgs attention = args, mlp = args;
  mlp.params = args.params.subspan(attention_parameters_);
  mlp.grads = args.grads.subspan(attention_parameters_);
  mlp.x = saved.middle;
  mlp.dx = args.dy;  // the gradient of the middle replaces that of the output
  mlp.saved = saved.mlp;
  attention.params = args.params.first(attention_parameters_);
  attention.grads = args.grads.first(attention_parameters_);
  attention.saved = saved.attention;
  if (args.part == 0) mlp_->backward(mlp, recompute);
  const bool trained = std::any_of(attention.grads.begin(), attention.grads.end(),
                                   [](const Tensor& gradient) { return bool(gradient); });
  if (args.dx || trained) attention_->backward(attention, recompute);
}

}  // namespace

std::unique_ptr<Layer> make_block(BlockOptions options) {
  return std::make_unique<Block>(std::move(options));
}

}  // namespace zeno::nn
