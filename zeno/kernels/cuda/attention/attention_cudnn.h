// Attention on cuDNN's fused kernels; for shapes that cudnn_takes(). Async, see attention.h.
#pragma once

#include "zeno/kernels/attention.h"

namespace zeno::cuda {

void cudnn_attention_forward(StreamRef stream, const AttentionForward& op);
void cudnn_attention_backward(StreamRef stream, const AttentionBackward& op);

}  // namespace zeno::cuda
