// Which implementation attention uses on CUDA, and the layout of its gradient's temporaries. Pure arithmetic,
// in every build: the same functions size the workspace, on a machine without a GPU too, and carve it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "zeno/kernels/attention.h"

namespace zeno::cuda {

// Hands out parts of a block in order, 256-byte aligned. A carver over nothing just counts.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <class T = std::byte>
  T* take(int64_t count) {
    const size_t at = used_;
    used_ += (size_t(count) * sizeof(T) + 255) / 256 * 256;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

// Whether cuDNN's fused kernels take the shape in both directions.
bool cudnn_takes(const AttentionShape& shape, DType dtype);

// Sequences and heads that the gradient treats at a time.
struct AttentionChunk {
  int64_t batch = 0, heads = 0, kv_heads = 0;
  int64_t queries(int64_t seq) const { return batch * heads * seq; }
};
AttentionChunk gradient_chunk(const AttentionShape& shape);

// Temporaries of one chunk of cuDNN's gradient; absent ones are null.
struct GradientSpace {
  float* delta = nullptr;      // [queries]
  int32_t* lengths = nullptr;  // [sequences]
  float* dq_sums = nullptr;    // [queries, D], where sums have no fixed order
  std::byte* cudnn = nullptr;
  size_t cudnn_bytes = 0;
  size_t bytes = 0;  // of all
};
GradientSpace gradient_space(std::byte* base, const AttentionShape& shape);

size_t attention_backward_workspace(const AttentionShape& shape, DType dtype);

}  // namespace zeno::cuda
