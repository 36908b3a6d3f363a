// The order in which the tiles of a large matmul are computed. Tiles that are computed at the same time share
// their operands through the L2 cache, so the columns are cut into bands whose part of B stays there while A
// passes by once per band. Pure arithmetic, host and device.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "zeno/base/math.h"

namespace zeno::cuda {

struct Tile {
  uint32_t row, column;
};

struct TileOrder {
  uint32_t rows = 0, columns = 0;  // tiles
  uint32_t band = 1;               // columns of tiles that are passed together

  TileOrder() = default;
  // column_bytes: of B behind one column of tiles; cache_bytes: what of B may stay.
  TileOrder(int64_t tile_rows, int64_t tile_columns, int64_t column_bytes, int64_t cache_bytes)
      : rows(uint32_t(tile_rows)), columns(uint32_t(tile_columns)) {
    if (columns == 0) return;
    const int64_t most = std::max<int64_t>(1, cache_bytes / std::max<int64_t>(1, column_bytes));
    const int64_t bands = div_ceil<int64_t>(columns, most);
    band = uint32_t(div_ceil<int64_t>(columns, bands));  // all of about the same width
  }

  __host__ __device__ uint32_t count() const { return rows * columns; }

  __host__ __device__ Tile at(uint32_t index) const {
    const uint32_t first = index / (band * rows) * band;  // column of this band
    const uint32_t width = columns - first < band ? columns - first : band;
    const uint32_t place = index - first * rows;
    return {place / width, first + place % width};
  }
};

}  // namespace zeno::cuda
