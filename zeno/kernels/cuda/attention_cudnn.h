// Attention on cuDNN's fused kernels; for shapes that cudnn_takes(). Async, see attention.h.
#pragma once

#include "zeno/kernels/attention.h"

namespace zeno::cuda {

void cudnn_attention_forward(StreamRef stream, const AttentionForward& op);
void cudnn_attention_backward(StreamRef stream, const AttentionBackward& op, bool ordered);
size_t cudnn_attention_workspace(const AttentionShape& shape, bool ordered);

}  // namespace zeno::cuda
