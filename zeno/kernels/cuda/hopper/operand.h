// How the products of a warpgroup find an operand in shared memory: matrix descriptors of the PTX manual, for
// 16-bit values in rows of 128 bytes, their 16-byte pieces exchanged as the copy engine does it
// (SWIZZLE_128B), groups of eight rows 1024 bytes apart and aligned so. Pure arithmetic, host and device.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace zeno::cuda::hopper {

inline constexpr uint32_t kOperandRowBytes = 128, kOperandGroupBytes = 8 * kOperandRowBytes;

// Rows run across the depth, 64 values wide; `next` bytes on come the 64 values beside them.
__host__ __device__ inline uint64_t operand_across(uint32_t address, uint32_t next) {
  constexpr uint64_t kSwizzle128 = 1;
  return uint64_t(address >> 4) | uint64_t(next >> 4) << 16 | uint64_t(kOperandGroupBytes >> 4) << 32 |
         kSwizzle128 << 62;
}

// Rows run along the depth, the dimension that is summed over.
__host__ __device__ inline uint64_t operand_by_depth(uint32_t address) {
  return operand_across(address, 16);  // the offset is not used, and by convention 1
}

// The same operand, `bytes` further on.
__host__ __device__ inline uint64_t advanced(uint64_t operand, uint32_t bytes) {
  return operand + (bytes >> 4);
}

}  // namespace zeno::cuda::hopper
