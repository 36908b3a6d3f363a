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
  const Partition partition(size, comm::Mesh::flat(world), chunk, align);
  ASSERT_GE(partition.padded(), size);
  ASSERT_LT(partition.padded() - size, world * align);
  std::vector<int> owners(static_cast<size_t>(size), 0);
  for (int rank = 0; rank < world; ++rank) {
    int64_t end = 0;
    for (const Partition::Piece& piece : partition.pieces(rank, comm::kDataAxes)) {
      ASSERT_GE(piece.shard, end);
      ASSERT_EQ(piece.full % align, 0);
      ASSERT_EQ(piece.shard % align, 0);
      end = piece.shard + piece.count;
      for (int64_t i = 0; i < piece.count; ++i) ++owners[size_t(piece.full + i)];
    }
    ASSERT_LE(end, partition.shard(comm::kDataAxes));
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
  ASSERT_EQ(shard, partition.shard(comm::kDataAxes));
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
  const Partition partition(10, comm::Mesh::flat(8), 1 << 20);
  EXPECT_EQ(partition.pieces(0, comm::kDataAxes).size(), 1u);
  for (int rank = 1; rank < 8; ++rank) EXPECT_TRUE(partition.pieces(rank, comm::kDataAxes).empty());
  EXPECT_EQ(partition.shard(comm::kDataAxes), kFlatAlign);
}

TEST(Partition, CutsPiecesToARange) {
  const Partition partition(1000, comm::Mesh::flat(3), 1 << 20);
  int64_t total = 0;
  for (int rank = 0; rank < 3; ++rank) {
    for (const Partition::Piece& piece : partition.pieces(rank, comm::kDataAxes, 300, 700)) {
      EXPECT_GE(piece.full, 300);
      EXPECT_LE(piece.full + piece.count, 700);
      total += piece.count;
    }
  }
  EXPECT_EQ(total, 400);
}

// On a mesh, what a rank keeps over fewer axes has all that it keeps over more, at the index that it says.
TEST(Partition, PartsAreNestedOnAMesh) {
  using comm::Axes, comm::Axis;
  const std::vector<Axes> levels{{}, {Axis::inner}, {Axis::inner, Axis::outer}};
  for (const auto& [outer, inner] : {std::pair{1, 4}, {2, 2}, {4, 1}, {2, 4}, {3, 5}}) {
    const comm::Mesh mesh({1, outer, inner, 1, 1, 1});
    for (const int64_t size : {0, 1, 100, 10'007}) {
      const Partition partition(size, mesh, 700, 8);
      for (const Axes axes : levels) {
        EXPECT_EQ(partition.shard(axes) * mesh.size(axes), partition.padded());
        std::vector<int> keepers(static_cast<size_t>(size), 0);
        for (int rank = 0; rank < mesh.ranks(); ++rank) {
          for (const Partition::Piece& piece : partition.pieces(rank, axes)) {
            EXPECT_LE(piece.shard + piece.count, partition.shard(axes));
            EXPECT_EQ(partition.index(rank, axes, piece.full), piece.shard);
            for (int64_t i = 0; i < piece.count; ++i) ++keepers[size_t(piece.full + i)];
          }
          for (const Partition::Piece& own : partition.pieces(rank, comm::kDataAxes))
            EXPECT_EQ(partition.pieces(rank, axes, own.full, own.full + own.count).size(), 1u);
        }
        for (const int count : keepers) EXPECT_EQ(count, mesh.ranks() / mesh.size(axes));
      }
    }
  }
}

}  // namespace
}  // namespace zeno::zero
