// Runs a product in a form that cuBLASLt has, with the plan of its key: looked up, or made at the first call.
#pragma once

#include "zeno/kernels/cuda/matmul/matmul_problem.h"

namespace zeno::cuda {

// Async, except where a MatmulTuning is alive and the product is new. False when the library has no algorithm
// for this form: nothing was done.
bool run_product(StreamRef stream, const MatmulCall& call);

}  // namespace zeno::cuda
