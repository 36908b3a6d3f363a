// Causal softmax attention over packed Q, K and V, grouped heads, several documents per row of the batch.
// Never holds a T×T matrix: scores exist one tile at a time, forward keeps only the log-sum-exp of each row.
#pragma once

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

namespace zeno {

// Legend: B sequences of T tokens, H query heads, G key/value heads (H % G == 0), D values per head (1 to
// 256). On GPUs, 16-bit heads of at most 128 values go through cuDNN when D is a multiple of 8; others are
// slower.
struct AttentionShape {
  int64_t batch = 0, seq = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;     // multiplies the scores, usually 1/sqrt(D)
  int64_t window = 0;  // sliding window: a token sees itself and window-1 before it; 0 = no limit
  // GPU: sum the gradient of the queries in a fixed order (the CPU always does). That goes through a matrix
  // of score gradients in the workspace, at most 1 GiB or one key/value head at a time; off, cuDNN adds with
  // atomics.
  bool deterministic = false;
};

struct AttentionForward {
  AttentionShape shape;
  Tensor qkv;  // [B·T, (H+2G)·D]: all query heads, then all key heads, then all value heads
  // i32 [1, B·T]: index within its sequence (0..T-1) where the token's document starts; a token sees tokens
  // doc_start..itself. Empty view: every sequence is one document.
  Tensor doc_start;
  int64_t documents = 0;  // with doc_start: at most this many in the micro-batch; known on the host
  Tensor out;             // [B·T, H·D], dtype of qkv
  Tensor lse;             // f32 [B·H, T], kept for backward
};

struct AttentionBackward {
  AttentionShape shape;
  Tensor qkv, doc_start, out, lse;  // as in forward
  Tensor dout;                      // [B·T, H·D]
  Tensor dqkv;                      // [B·T, (H+2G)·D], written
  Tensor workspace;                 // u8, attention_backward_workspace() bytes
};

void attention_forward(StreamRef stream, const AttentionForward& op);
void attention_backward(StreamRef stream, const AttentionBackward& op);
size_t attention_backward_workspace(Device::Kind kind, const AttentionShape& shape, DType dtype);

}  // namespace zeno
