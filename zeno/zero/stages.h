// Cuts a model's layers into the stages of a pipeline: each stage has consecutive layers, the last one the
// loss as well.
#pragma once

#include <vector>

#include "zeno/nn/layer.h"

namespace zeno::zero {

struct Stage {
  int index = 0, count = 1;
  int first = 0, end = 0;  // its layers [first, end); the loss counts as the layer after all others

  bool has(int layer) const { return layer >= first && layer < end; }
  bool is_first() const { return index == 0; }
  bool is_last() const { return index + 1 == count; }
};

// Minimises the time of the slowest stage, estimated from the FLOPs of the layers. Error(usage) when there
// are more stages than layers.
std::vector<Stage> cut_stages(const nn::LayerList& model, nn::BatchShape shape, DType compute, int count);

}  // namespace zeno::zero
