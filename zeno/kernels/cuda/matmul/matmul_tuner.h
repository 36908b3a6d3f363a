// Times the algorithms that cuBLASLt offers for one matmul, with the given operands: all of them in bursts,
// and for matmuls that are large enough to reach the power limit, the best of those under sustained load.
#pragma once

#include <optional>

#include "zeno/kernels/cuda/matmul/matmul_problem.h"

namespace zeno::cuda {

// The fastest; nothing when the library has no algorithm. Overwrites C and the stream's scratch, waits for
// the device. The stream must be idle and not under capture.
std::optional<MatmulPlan> tune(cublasLtHandle_t handle, MatmulProblem& problem, StreamRef stream);

}  // namespace zeno::cuda
