// The layout of tiles of 16-bit values in shared memory, and how warpgroup matmuls find them there: rows of
// 128 bytes, their 16-byte pieces exchanged by the copy engine (SWIZZLE_128B), groups of eight rows one after
// the other and aligned to their size; matrix descriptors of the PTX manual. Pure arithmetic, host and
// device.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace zeno::cuda::hopper {

inline constexpr uint32_t kRowBytes = 128;
inline constexpr int kRowValues = kRowBytes / 2;

// A descriptor has 18 bits for an address. In a cluster, addresses have the block's rank above those.
inline constexpr uint32_t kMostShared = 1 << 18;

// `next`: bytes from a group of columns to the one beside it; not used, and by convention 16, where rows run
// along the depth.
__host__ __device__ inline uint64_t operand(uint32_t address, uint32_t next = 16) {
  constexpr uint64_t kSwizzle128 = 1;
  return uint64_t(address % kMostShared >> 4) | uint64_t(next >> 4) << 16 |
         uint64_t(8 * kRowBytes >> 4) << 32 | kSwizzle128 << 62;
}

// The same operand, `bytes` further on.
__host__ __device__ inline uint64_t advanced(uint64_t from, uint32_t bytes) { return from + (bytes >> 4); }

}  // namespace zeno::cuda::hopper
