// The norm of a model family, chosen once per model: RMSNorm (no bias) or LayerNorm (with bias).
#pragma once

#include "zeno/kernels/norm.h"

namespace zeno::nn {

enum class Norm { rms, layer };

// Async on `stream`; the mean view is needed by LayerNorm only.
void norm_forward(StreamRef stream, Norm kind, const NormForward& op);
// fresh: dweight and dbias are written instead of added to.
void norm_backward(StreamRef stream, Norm kind, const NormBackward& op, bool fresh);

}  // namespace zeno::nn
