// A layer that does what another does: tests override what they change.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zeno/nn/layer.h"

namespace zeno::test {

class WrappedLayer : public nn::Layer {
 public:
  explicit WrappedLayer(std::unique_ptr<nn::Layer> inner) : inner_(std::move(inner)) {}
  std::string name() const override { return inner_->name(); }
  std::vector<nn::Parameter> parameters() const override { return inner_->parameters(); }
  nn::LayerSizes sizes(nn::BatchShape shape, DType compute, nn::Recompute recompute) const override {
    return inner_->sizes(shape, compute, recompute);
  }
  void forward(const nn::ForwardArgs& args, nn::Recompute recompute) const override {
    inner_->forward(args, recompute);
  }
  void backward(const nn::BackwardArgs& args, nn::Recompute recompute) const override {
    inner_->backward(args, recompute);
  }
  nn::LayerWork work(nn::BatchShape shape, DType compute, nn::Recompute recompute) const override {
    return inner_->work(shape, compute, recompute);
  }
  bool backward_needs_params() const override { return inner_->backward_needs_params(); }

 private:
  std::unique_ptr<nn::Layer> inner_;
};

}  // namespace zeno::test
