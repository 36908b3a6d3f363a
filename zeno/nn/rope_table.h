// Cosines and sines of the rotary embedding, computed once per model and shared by its blocks (hence
// shared_ptr in BlockOptions: no block outlives it, none is its only owner). Immutable after construction,
// except that a GPU gets its copy on first use: any thread may read.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "zeno/device/buffer.h"
#include "zeno/device/tensor.h"
#include "zeno/kernels/rope.h"

namespace zeno::nn {

class RopeTable {
 public:
  // Positions 0 .. positions-1 for heads of `head_dim` values (even).
  RopeTable(int64_t positions, int64_t head_dim, double theta, const RopeScaling& scaling = {});

  ~RopeTable();
  RopeTable(const RopeTable&) = delete;
  RopeTable& operator=(const RopeTable&) = delete;

  // f32 [positions, head_dim], first the cosines, then the sines, where the stream's kernels can read it. The
  // first call for a GPU copies and waits.
  Tensor view(StreamRef stream) const;
  Tensor host_view() const;
  int64_t positions() const { return positions_; }
  int64_t head_dim() const { return head_dim_; }

 private:
  int64_t positions_, head_dim_;
  std::vector<float> values_;
  mutable std::mutex mutex_;
  mutable std::map<int, Block> copies_;  // by index of the GPU
};

}  // namespace zeno::nn
