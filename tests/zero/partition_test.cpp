#include "zeno/zero/partition.h"

#include <gtest/gtest.h>

#include <vector>

#include "zeno/base/rng.h"
#include "zeno/device/flat_layout.h"

namespace zeno::zero {
namespace {

// Every element belongs to exactly one rank, pieces agree with chunks, cuts are aligned, padding is bounded.
void check(int64_t size, int world, int64_t chunk, int64_t align = kFlatAlign) {
  SCOPED_TRACE(testing::Message() << "size " << size << " world " << world << " chunk " << chunk);
  const Partition partition(size, world, chunk, align);
  ASSERT_GE(partition.padded(), size);
  ASSERT_LT(partition.padded() - size, world * align);
  std::vector<int> owners(static_cast<size_t>(size), 0);
  for (int rank = 0; rank < world; ++rank) {
    int64_t end = 0;
    for (const Partition::Piece& piece : partition.pieces(rank)) {
      ASSERT_GE(piece.shard, end);
      ASSERT_EQ(piece.full % align, 0);
      ASSERT_EQ(piece.shard % align, 0);
      end = piece.shard + piece.count;
      for (int64_t i = 0; i < piece.count; ++i) ++owners[size_t(piece.full + i)];
    }
    ASSERT_LE(end, partition.shard());
  }
  for (int count : owners) ASSERT_EQ(count, 1);
  int64_t begin = 0, shard = 0;
  for (const Partition::Chunk& c : partition.chunks()) {
    ASSERT_EQ(c.begin, begin);
    ASSERT_EQ(c.shard, shard);
    begin += c.piece * world;
    shard += c.piece;
  }
  ASSERT_EQ(begin, partition.padded());
  ASSERT_EQ(shard, partition.shard());
}

TEST(Partition, CoversEverySizeExactlyOnce) {
  for (int64_t size : {0, 1, 63, 64, 65, 100, 1000, 4096, 10007}) {
    for (int world : {1, 2, 3, 4, 5, 7, 8, 128}) {
      for (int64_t chunk : {1, 64, 1000, 4096, 1 << 30}) {
        for (int64_t align : {kFlatAlign, int64_t(1024)}) check(size, world, chunk, align);
      }
    }
  }
}

TEST(Partition, CoversRandomSizes) {
  for (uint64_t i = 0; i < 300; ++i) {
    check(int64_t(random_bits(1, 1, i) % 20000), 1 + int(random_bits(1, 2, i) % 16),
          1 + int64_t(random_bits(1, 3, i) % 8000));
  }
}

TEST(Partition, MoreRanksThanElementsLeavesEmptyShards) {
  const Partition partition(10, 8, 1 << 20);
  EXPECT_EQ(partition.pieces(0).size(), 1u);
  for (int rank = 1; rank < 8; ++rank) EXPECT_TRUE(partition.pieces(rank).empty());
  EXPECT_EQ(partition.shard(), kFlatAlign);
}

TEST(Partition, CutsPiecesToARange) {
  const Partition partition(1000, 3, 1 << 20);
  int64_t total = 0;
  for (int rank = 0; rank < 3; ++rank) {
    for (const Partition::Piece& piece : partition.pieces(rank, 300, 700)) {
      EXPECT_GE(piece.full, 300);
      EXPECT_LE(piece.full + piece.count, 700);
      total += piece.count;
    }
  }
  EXPECT_EQ(total, 400);
}

}  // namespace
}  // namespace zeno::zero
