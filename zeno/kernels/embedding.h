// Token (and learned position) embedding. The backward pass adds rows in the order of their positions in the
// batch, whatever the thread count: no atomics.
#pragma once

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

namespace zeno {

struct EmbeddingForward {
  Tensor tokens;          // i32 [1, R], each in 0..V-1 (checked when data is loaded)
  Tensor positions;       // i32 [1, R]; needed with position_table
  Tensor table;           // [V, C]
  Tensor position_table;  // optional [P, C], added
  Tensor y;               // [R, C]
};
void embedding_forward(StreamRef stream, const EmbeddingForward& op);

// dtable[ids[r]] += dy[r] for all r in order; dtable is [V, C] in the gradient dtype.
void embedding_backward(StreamRef stream, Tensor ids, Tensor dy, Tensor dtable);

}  // namespace zeno
