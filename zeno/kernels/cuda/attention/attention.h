// Attention on CUDA. bf16 and f16 run on cuDNN's fused kernels, everything they do not take (f32, heads wider
// than 128, very short sequences) on plain kernels of our own. Async on the stream, capturable once a shape
// has run.
#pragma once

#include "zeno/kernels/attention.h"

namespace zeno::cuda {

void attention_forward(StreamRef stream, const AttentionForward& op);
void attention_backward(StreamRef stream, const AttentionBackward& op);

}  // namespace zeno::cuda
