// What the copy engine of a GPU (Hopper and later) has to know of a matrix to bring tiles of it. A plain
// value, made on the host without waiting, handed to kernels by value.
#pragma once

#include <cuda.h>

#include "zeno/device/tensor.h"

namespace zeno::cuda {

// Tiles of `rows` x kRowValues of a bf16 matrix, laid out as operand.h says. What lies outside the matrix
// arrives as zeros. Rows must start on 16 bytes.
CUtensorMap tile_map(const Tensor& matrix, int rows);

}  // namespace zeno::cuda
