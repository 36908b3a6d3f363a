// Softmax cross-entropy over one chunk of logits, in place. The caller (nn/lm_head) never holds more than a
// chunk.
#pragma once

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

namespace zeno {

struct CrossEntropy {
  Tensor logits;   // [R, V]; on return dlogits = (softmax − onehot) · grad_scale, unless grad_scale is 0
  Tensor targets;  // i32 [1, R], each in 0..V-1: ignored rows have been left out by the caller
  Tensor losses;   // f32 [1, R], −log p(target), written
  Tensor hits;     // optional i32 [1, R], 1 where the target is the arg-max (token accuracy)
  float grad_scale = 0;
};
void cross_entropy(StreamRef stream, const CrossEntropy& op);

// dst[i] = src[index[i]] and dst[index[i]] = src[i], row by row; index is i32 [1, rows].
void gather_rows(StreamRef stream, Tensor src, Tensor index, Tensor dst);
void scatter_rows(StreamRef stream, Tensor src, Tensor index, Tensor dst);

}  // namespace zeno
