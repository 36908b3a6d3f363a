// Cosines and sines of the rotary embedding, computed once per model and shared by its blocks (hence
// shared_ptr in BlockOptions: no block outlives it, none is its only owner). Immutable after construction:
// any thread may read.
#pragma once

#include <cstdint>
#include <vector>

#include "zeno/kernels/rope.h"
#include "zeno/tensor/tensor.h"

namespace zeno::nn {

class RopeTable {
 public:
  // Positions 0 .. positions-1 for heads of `head_dim` values (even).
  RopeTable(int64_t positions, int64_t head_dim, double theta, const RopeScaling& scaling = {});

  // f32 [positions, head_dim], first the cosines, then the sines.
  Tensor view() const;
  int64_t positions() const { return positions_; }
  int64_t head_dim() const { return head_dim_; }

 private:
  int64_t positions_, head_dim_;
  std::vector<float> values_;
};

}  // namespace zeno::nn
