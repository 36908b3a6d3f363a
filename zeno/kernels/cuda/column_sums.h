// Second step of a deterministic sum over rows: partial sums of row blocks become one += into a gradient row.
#pragma once

#include <cuda_runtime.h>

#include "zeno/device/tensor.h"

namespace zeno::cuda {

// row[0, c] += Σ over b of partial[b, c] for c < row.cols: `partial` is f32 [blocks, row.cols] in device
// memory, added in an order that follows from `blocks` alone, and the result is rounded to row's dtype once.
void add_column_sums(cudaStream_t stream, const float* partial, uint32_t blocks, const Tensor& row);

}  // namespace zeno::cuda
