#include "zeno/comm/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/expect_error.h"

namespace zeno::comm {
namespace {

using Ranks = std::vector<int>;

TEST(Mesh, GroupsOfAGridOfTwoAxes) {
  const Mesh mesh({1, 2, 4, 1, 1, 1});
  EXPECT_EQ(mesh.ranks(), 8);
  EXPECT_EQ(mesh.group(6, {Axis::inner}), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(mesh.group(6, {Axis::outer}), (Ranks{2, 6}));
  EXPECT_EQ(mesh.group(6, kDataAxes), (Ranks{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(mesh.group(6, {}), (Ranks{6}));
  EXPECT_EQ(mesh.place(6, {Axis::inner}), 2);
  EXPECT_EQ(mesh.place(6, {Axis::outer}), 1);
  EXPECT_EQ(describe(mesh), "outer 2 × inner 4");
}

TEST(Mesh, GroupsOfAGridOfThreeAxes) {
  const Mesh mesh({2, 1, 2, 1, 1, 2});
  EXPECT_EQ(mesh.group(5, {Axis::tensor}), (Ranks{4, 5}));
  EXPECT_EQ(mesh.group(5, {Axis::inner}), (Ranks{5, 7}));
  EXPECT_EQ(mesh.group(5, {Axis::pipe}), (Ranks{1, 5}));
  EXPECT_EQ(mesh.group(5, {Axis::pipe, Axis::tensor}), (Ranks{0, 1, 4, 5}));
  EXPECT_EQ(describe(mesh), "pipe 2 × inner 2 × tensor 2");
}

// For any sizes and axes: a rank is where its group says, groups have the size of their axes, and cut the
// world.
TEST(Mesh, GroupsCutTheWorld) {
  const std::vector<Mesh::Sizes> sizes{
      {1, 1, 1, 1, 1, 1}, {2, 3, 2, 1, 2, 1}, {1, 2, 3, 2, 1, 5}, {3, 1, 1, 2, 2, 2}};
  const std::vector<Axes> sets{{},         {Axis::outer}, {Axis::pipe, Axis::context},
                               kShardAxes, kDataAxes,     {Axis::tensor}};
  for (const Mesh::Sizes& size : sizes) {
    const Mesh mesh(size);
    for (const Axes axes : sets) {
      std::set<Ranks> groups;
      for (int rank = 0; rank < mesh.ranks(); ++rank) {
        const Ranks group = mesh.group(rank, axes);
        ASSERT_EQ(int(group.size()), mesh.size(axes));
        EXPECT_EQ(group[size_t(mesh.place(rank, axes))], rank);
        EXPECT_TRUE(std::ranges::is_sorted(group));
        for (const int other : group) EXPECT_EQ(mesh.group(other, axes), group);
        groups.insert(group);
      }
      EXPECT_EQ(int(groups.size()) * mesh.size(axes), mesh.ranks());
      EXPECT_EQ(mesh.group(0, mesh.needed(axes)), mesh.group(0, axes));
    }
  }
}

TEST(Mesh, SetsOfAxes) {
  EXPECT_TRUE(kDataAxes.has(Axis::outer));
  EXPECT_TRUE(kDataAxes.has(kShardAxes));
  EXPECT_FALSE(kShardAxes.has(kDataAxes));
  EXPECT_EQ(kDataAxes - kShardAxes, Axes{Axis::outer});
  EXPECT_EQ(describe(Axes{Axis::outer, Axis::inner, Axis::context}), "outer, inner and context");
  EXPECT_EQ(describe(Axes{Axis::pipe}), "pipe");
  EXPECT_EQ(describe(Axes{}), "no axis");
  EXPECT_EQ(describe(Mesh()), "1 rank");
}

TEST(Mesh, RanksOfData) {
  const Mesh mesh({2, 3, 4, 2, 5, 2});
  EXPECT_EQ(mesh.ranks(), 480);
  EXPECT_EQ(mesh.data_ranks(), 120);
  EXPECT_EQ(mesh.batch_ranks(), 24) << "ranks along context share their sequences";
}

TEST(Mesh, IsMadeOfHostsAndGroups) {
  const auto made = [](MeshRequest request) { return describe(mesh_of(request)); };
  EXPECT_EQ(made({.ranks = 12}), "inner 12");
  EXPECT_EQ(made({.ranks = 12, .ranks_per_host = 4}), "outer 3 × inner 4");
  EXPECT_EQ(made({.ranks = 12, .ranks_per_host = 6}), "inner 12") << "sums in two levels have other bits";
  EXPECT_EQ(made({.ranks = 4, .ranks_per_host = 8}), "inner 4");
  EXPECT_EQ(made({.ranks = 12, .ranks_per_host = 4, .group = 6}), "outer 2 × inner 6");
  EXPECT_EQ(made({.ranks = 12, .ranks_per_host = 4, .group = 12}), "inner 12");
  test::expect_error(ErrorKind::usage, {"12 ranks in groups of 5"}, [&] { made({.ranks = 12, .group = 5}); });
}

TEST(Mesh, KeepsItsOtherAxes) {
  const Mesh mesh({2, 2, 4, 1, 1, 2});
  EXPECT_EQ(mesh.in_groups(2), Mesh({2, 4, 2, 1, 1, 2}));
  EXPECT_EQ(mesh.with(Axis::outer, 6), Mesh({2, 6, 4, 1, 1, 2}));
  EXPECT_EQ(Mesh::flat(3), Mesh({1, 1, 3, 1, 1, 1}));
}

TEST(Mesh, SizesAreAtLeastOne) {
  test::expect_error(ErrorKind::usage, {"0 ranks along outer"}, [] { Mesh({1, 0, 2, 1, 1, 1}); });
}

}  // namespace
}  // namespace zeno::comm
