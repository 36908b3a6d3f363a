// How the products of a warpgroup find an operand in shared memory: matrix descriptors of the PTX manual, for
// 16-bit values in rows of 64 or 128 bytes, their 16-byte pieces exchanged as the copy engine does it
// (SWIZZLE_64B, SWIZZLE_128B), groups of eight rows one after the other and aligned to their size. Pure
// arithmetic, host and device.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace zeno::cuda::hopper {

// Of an operand whose rows run across the depth: 64 values.
inline constexpr uint32_t kAcrossRowBytes = 128;

// A descriptor has 18 bits for an address. In a cluster, addresses have the block's rank above those.
inline constexpr uint32_t kMostShared = 1 << 18;

// `next`: bytes from a group of columns to the one beside it; not used, and by convention 16, where rows run
// along the depth.
__host__ __device__ inline uint64_t operand(uint32_t address, uint32_t row_bytes, uint32_t next = 16) {
  const uint64_t swizzle = row_bytes == 128 ? 1 : 2;
  return uint64_t(address % kMostShared >> 4) | uint64_t(next >> 4) << 16 |
         uint64_t(8 * row_bytes >> 4) << 32 | swizzle << 62;
}

// The same operand, `bytes` further on.
__host__ __device__ inline uint64_t advanced(uint64_t from, uint32_t bytes) { return from + (bytes >> 4); }

}  // namespace zeno::cuda::hopper
