// Which way an attention call goes and where its temporaries lie. Pure arithmetic: the same functions size
// the workspace and carve it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "zeno/kernels/attention.h"
#include "zeno/kernels/cuda/attention_documents.h"

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

// Batch entries of the ragged form, a power of two; 0: documents are kept apart by a mask over whole
// sequences instead. Both directions of a call must agree: the ragged form stores lse as [B·T, H].
int64_t ragged_entries(const AttentionShape& shape, int64_t documents);
int64_t most_ragged_entries(const AttentionShape& shape);

// Sequences and heads that the gradient treats at a time.
struct AttentionChunk {
  int64_t batch = 0, heads = 0, kv_heads = 0;
};
AttentionChunk gradient_chunk(const AttentionShape& shape, bool ordered);

// Temporaries of the gradient; absent ones are null.
struct GradientSpace {
  float* delta = nullptr;                              // [B·H·T]
  float* lse = nullptr;                                // [B·H, T], when forward left it ragged
  int32_t* lengths = nullptr;                          // [B]
  float* dq_sums = nullptr;                            // unordered
  std::byte *dk = nullptr, *dv = nullptr;              // ragged, grouped heads: [B·T, G·D]
  std::byte *dk_heads = nullptr, *dv_heads = nullptr;  // and [B·T, H·D]
  DocumentTables tables;
  std::byte* cudnn = nullptr;
  size_t cudnn_bytes = 0;
  size_t bytes = 0;  // of all
};
GradientSpace dense_gradient_space(std::byte* base, const AttentionShape& shape, bool ordered);
GradientSpace ragged_gradient_space(std::byte* base, const AttentionShape& shape, int64_t entries,
                                    int64_t dq_stride);

// `count` tables for `entries` documents, in the order of DocumentTables::strides.
DocumentTables carve_tables(Carver& carve, int64_t entries, int count);

}  // namespace zeno::cuda
