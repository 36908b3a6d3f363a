#include "zeno/kernels/cuda/hopper/tile_order.h"

#include <gtest/gtest.h>

#include <set>

namespace zeno::cuda {
namespace {

TEST(TileOrder, EveryTileComesOnce) {
  for (int64_t rows : {1, 2, 3, 7, 64}) {
    for (int64_t columns : {1, 2, 5, 31, 70}) {
      for (int64_t cached : {0, 1, 2, 3, 16, 1000}) {
        const TileOrder order(rows, columns, 100, cached * 100);
        std::set<std::pair<uint32_t, uint32_t>> seen;
        for (uint32_t i = 0; i < order.count(); ++i) {
          const Tile tile = order.at(i);
          EXPECT_LT(tile.row, rows);
          EXPECT_LT(tile.column, columns);
          seen.insert({tile.row, tile.column});
        }
        EXPECT_EQ(int64_t(seen.size()), rows * columns) << rows << " x " << columns << ", " << cached;
      }
    }
  }
}

// What is cached of B serves all rows before the next part of it is read.
TEST(TileOrder, BandsFitTheCacheAndAreOfOneWidth) {
  const TileOrder order(10, 70, 100, 2100);
  EXPECT_EQ(order.band, 18u);  // four bands, where 21 would leave a last one of 7
  for (uint32_t i = 0; i < order.count(); ++i) EXPECT_EQ(order.at(i).column / 18, i / (18 * 10));
}

TEST(TileOrder, NothingHasNoTiles) {
  EXPECT_EQ(TileOrder(0, 5, 100, 100).count(), 0u);
  EXPECT_EQ(TileOrder(5, 0, 100, 100).count(), 0u);
}

}  // namespace
}  // namespace zeno::cuda
