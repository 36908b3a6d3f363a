// Whether two algorithms compute the same result. The tuner tries configurations that the library's heuristic
// did not propose; before one is chosen, its result is compared with that of the first choice.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "zeno/kernels/cuda/matmul/matmul_problem.h"

namespace zeno::cuda {

// Rows from all over C after `run` into zeros. Overwrites C, waits for the stream.
std::vector<float> sample_output(const MatmulCall& call, cudaStream_t stream,
                                 const std::function<void()>& run);
// Up to roundings. False when `expected` is not finite: then nothing can be told.
bool agree(std::span<const float> expected, std::span<const float> got);

}  // namespace zeno::cuda
