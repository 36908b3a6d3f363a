// What the copy engine of a GPU (Hopper and later) has to know of a matrix to bring tiles of it. A plain
// value, made on the host without waiting, handed to kernels by value.
#pragma once

#include <cuda.h>

#include "zeno/tensor/tensor.h"

namespace zeno::cuda {

// Tiles of `box_rows` x `box_columns` values of a bf16 matrix, as rows of 64 or 128 bytes with their 16-byte
// pieces exchanged (SWIZZLE_64B, SWIZZLE_128B). What lies outside the matrix arrives as zeros. Rows must
// start on 16 bytes.
CUtensorMap tile_map(const Tensor& matrix, int box_rows, int box_columns);

}  // namespace zeno::cuda
