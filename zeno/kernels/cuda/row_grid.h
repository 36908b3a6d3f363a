// Maps threads to the groups of columns of a matrix: a block of kRowThreads threads covers `lanes` groups of
// 1 << row_bits rows, so narrow and wide matrices both fill it. One thread, one group; no loops, no divisions
// per element.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "zeno/base/error.h"
#include "zeno/base/math.h"

namespace zeno::cuda {

inline constexpr int kRowThreads = 256;

struct RowGrid {
  int64_t rows = 0;
  uint32_t groups = 0;         // per row
  uint32_t lane_bits = 0;      // log2 of the threads along a row
  uint32_t column_blocks = 0;  // blocks along a row
  uint32_t blocks = 0;         // 0: nothing to do

  RowGrid(int64_t height, int64_t groups_per_row) : rows(height), groups(uint32_t(groups_per_row)) {
    ensure(groups_per_row < int64_t(1) << 31, "[cuda] columns: got {} groups, expected less than 2^31",
           groups_per_row);
    if (rows == 0 || groups == 0) return;
    // The widest that leaves at most an eighth of the threads idle, else the one that wastes least.
    uint32_t least = ~0u;
    for (int bits = 8; bits >= 0; --bits) {
      const uint32_t idle = round_up(groups, 1u << bits) - groups;
      if (idle < least) least = idle, lane_bits = uint32_t(bits);
      if (least <= groups / 8) break;
    }
    column_blocks = div_ceil(groups, 1u << lane_bits);
    const int64_t count = div_ceil<int64_t>(rows, kRowThreads >> lane_bits) * column_blocks;
    ensure(count < int64_t(1) << 31, "[cuda] matrix: got {} blocks, expected less than 2^31", count);
    blocks = uint32_t(count);
  }

  struct Place {
    int64_t row;
    int64_t group;
    bool inside;
  };
  __device__ Place place() const {
    const uint32_t row_block = blockIdx.x / column_blocks;
    const uint32_t column_block = blockIdx.x - row_block * column_blocks;
    const uint32_t group = (column_block << lane_bits) + (threadIdx.x & ((1u << lane_bits) - 1));
    const int64_t row = int64_t(row_block) * (kRowThreads >> lane_bits) + (threadIdx.x >> lane_bits);
    return {row, group, row < rows && group < groups};
  }
};

}  // namespace zeno::cuda
