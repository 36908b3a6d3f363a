#pragma once

#include <string>
#include <vector>

#include "zeno/device/copy.h"
#include "zeno/nn/layer.h"

namespace zeno::test {

// A layer that passes its input on and owns a parameter nobody uses.
class IdleLayer final : public nn::Layer {
 public:
  std::string name() const override { return "idle"; }
  std::vector<nn::Parameter> parameters() const override {
    return {{.name = "idle.weight", .rows = 3, .cols = 7}};
  }
  nn::LayerSizes sizes(nn::BatchShape, DType, nn::Recompute) const override { return {}; }
  void forward(const nn::ForwardArgs& args, nn::Recompute) const override {
    copy_async(args.stream, args.y.data, args.x.data, args.x.bytes());
  }
  void backward(const nn::BackwardArgs&, nn::Recompute) const override {}  // dx is dy
  nn::LayerWork work(nn::BatchShape, DType, nn::Recompute) const override { return {}; }
};

}  // namespace zeno::test
