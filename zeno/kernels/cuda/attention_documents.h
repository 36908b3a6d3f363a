// Packed documents for cuDNN's ragged attention: every document becomes a batch entry with a length and a
// start, found on the device. All calls are async and write memory of the caller.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "zeno/tensor/tensor.h"

namespace zeno::cuda {

inline constexpr int kDocumentTables = 6;

// `capacity` entries; those beyond the last document have length 0.
struct DocumentTables {
  int64_t capacity = 0;
  int32_t* starts = nullptr;               // [capacity + 1]: first token, counted over the whole batch
  int32_t* lengths = nullptr;              // [capacity]
  int64_t* offsets[kDocumentTables] = {};  // [capacity + 1] each: start · stride, null: not wanted
  int64_t strides[kDocumentTables] = {};
};

// doc_start is i32 [tokens] as in AttentionForward. More documents than the capacity stop the device: the
// host promised a bound.
void find_documents(cudaStream_t stream, const int32_t* doc_start, int64_t tokens, int64_t seq,
                    const DocumentTables& tables);

void fill_lengths(cudaStream_t stream, int32_t* lengths, int64_t count, int32_t value);

// [batch·seq, heads] → [batch·heads, seq]
void split_heads(cudaStream_t stream, const float* from, float* to, int64_t batch, int64_t seq,
                 int64_t heads);

// Rows of `from` into rows of `to`, 16-bit elements; widths and strides are multiples of 8.
void copy_rows(cudaStream_t stream, const Tensor& from, const Tensor& to);

}  // namespace zeno::cuda
