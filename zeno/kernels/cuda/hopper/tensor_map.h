// What the copy engine of a GPU (Hopper and later) must know about a matrix to load its tiles. A plain value,
// made on the host without waiting, handed to kernels by value.
#pragma once

#include <cuda.h>

#include "zeno/device/tensor.h"

namespace zeno::cuda {

// Tiles of `rows` x kRowValues of a bf16 matrix, laid out as operand.h says. Values outside the matrix arrive
// as zeros. Rows must start on 16 bytes.
CUtensorMap tile_map(const Tensor& matrix, int rows);

}  // namespace zeno::cuda
