// Attention without cuDNN, for every float dtype and head size: exact semantics, a fixed order of sums, no
// matrix of scores. Slow next to the fused kernels; f32 and odd shapes live with that. Async.
#pragma once

#include <cuda_runtime.h>

#include "zeno/kernels/attention.h"

namespace zeno::cuda {

void plain_attention_forward(cudaStream_t stream, const AttentionForward& op);
// delta: f32 [B·H, T], written.
void plain_attention_backward(cudaStream_t stream, const AttentionBackward& op, float* delta);

}  // namespace zeno::cuda
