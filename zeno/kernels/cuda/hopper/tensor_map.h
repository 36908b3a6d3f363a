// What the copy engine of a GPU (Hopper and later) has to know of a matrix to bring tiles of it. A plain
// value, made on the host without waiting, handed to kernels by value.
#pragma once

#include <cuda.h>

#include "zeno/tensor/tensor.h"

namespace zeno::cuda {

// Tiles of `box_rows` x 64 values of a bf16 matrix, rows of 128 bytes with their 16-byte pieces exchanged
// (SWIZZLE_128B). What lies outside the matrix arrives as zeros. Rows must start on 16 bytes.
CUtensorMap tile_map(const Tensor& matrix, int box_rows);

}  // namespace zeno::cuda
