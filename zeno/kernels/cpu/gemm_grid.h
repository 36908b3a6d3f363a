// How the result of a matmul is cut into blocks for threads. The cut never changes bits: every block sums
// over the whole of K.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zeno {

// K is summed in pieces of kBlockK whatever the shape, so that the order of a sum depends on K alone.
inline constexpr int64_t kBlockK = 384;
// A packed block of B (kBlockK × kBlockN) lives in the L2 cache; the fp32 sums of one block are kBlockM ×
// kBlockN.
inline constexpr int64_t kBlockN = 384;
inline constexpr int64_t kBlockM = 1024;
// Panels of A packed at a time.
inline constexpr int64_t kPanelsA = 8;

struct GemmGrid {
  int64_t block_m = 0, block_n = 0;  // size of a block, multiples of the register tile
  int64_t count_m = 0, count_n = 0;  // blocks along M and N

  int64_t count() const { return count_m * count_n; }
};

// The grid with the least expected time on `threads` threads. tile_m × tile_n: the register tile.
GemmGrid choose_gemm_grid(int64_t m, int64_t n, int tile_m, int tile_n, int threads);

}  // namespace zeno
