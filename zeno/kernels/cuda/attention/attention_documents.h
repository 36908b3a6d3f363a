// Packed documents for cuDNN's ragged attention: every document becomes a batch entry with a length and a
// start, found on the device. All calls are async and write memory of the caller.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace zeno::cuda {

inline constexpr int kDocumentTables = 3;

// `capacity` entries; those beyond the last document have length 0.
struct DocumentTables {
  int64_t capacity = 0;
  int32_t* starts = nullptr;               // [capacity]: first token, counted over the whole batch
  int32_t* lengths = nullptr;              // [capacity]
  int64_t* offsets[kDocumentTables] = {};  // [capacity + 1] each: start · stride
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

}  // namespace zeno::cuda
