// What C holds before the result of a matmul is added to it, for the forms that cuBLASLt does not fuse.
#pragma once

#include "zeno/kernels/matmul.h"

namespace zeno::cuda {

// C = (C when accumulate) + bias + residual, whatever their types; a plain product: C = 0. Async.
void prepare_output(StreamRef stream, const Matmul& op);

}  // namespace zeno::cuda
