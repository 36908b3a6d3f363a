// The one-kernel forms of swiglu_product.h. False, and nothing done, where the matrices or the GPU are not
// such as they take: bf16, rows on 16 bytes, F a multiple of 8, compute capability 9.0. Async on the stream.
#pragma once

#include "zeno/kernels/swiglu_product.h"

namespace zeno::cuda {

bool run_fused(StreamRef stream, const SwigluProduct& op);
bool run_fused(StreamRef stream, const SwigluProductBackward& op);

}  // namespace zeno::cuda
