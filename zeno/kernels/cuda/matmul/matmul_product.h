// Runs a matmul in a form that cuBLASLt supports, with the plan for its key: looked up, or made at the first
// call.
#pragma once

#include "zeno/kernels/cuda/matmul/matmul_problem.h"

namespace zeno::cuda {

// Async, except if a MatmulTuning is alive and the matmul is new. False when the library has no algorithm for
// this form: nothing was done.
bool run_product(StreamRef stream, const MatmulCall& call);

}  // namespace zeno::cuda
