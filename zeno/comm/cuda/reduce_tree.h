// The canonical sum over ranks on the GPU: the same tree, and the same bits, as tree_sum of
// comm/reduce_tree.h. Async on the stream; inputs may lie on other GPUs that the current one can read.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "zeno/comm/reduce_tree.h"

namespace zeno::comm {

// `sum.streaming` has no meaning here. At most kMostTreeInputs inputs.
inline constexpr size_t kMostTreeInputs = 1024;
void cuda_tree_sum(cudaStream_t stream, const TreeSum& sum, std::span<const std::byte* const> inputs,
                   int64_t count);

}  // namespace zeno::comm
