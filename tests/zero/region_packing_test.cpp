#include "zeno/zero/program/region_packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "zeno/base/math.h"

namespace zeno::zero {
namespace {

constexpr size_t kAlign = 256;

bool meet(const Region& a, const Region& b) { return a.first <= b.last && b.first <= a.last; }

// The lowest place for each in this order, one by one; returns the bytes of all.
size_t pack_plainly(std::vector<Region> regions, const std::vector<size_t>& order) {
  std::vector<Region> placed;
  size_t bytes = 0;
  for (const size_t i : order) {
    Region& region = regions[i];
    std::ranges::sort(placed, {}, &Region::offset);
    region.offset = 0;
    for (const Region& other : placed) {
      if (!meet(region, other)) continue;
      if (region.offset + region.bytes <= other.offset) break;
      region.offset = std::max(region.offset, round_up(other.offset + other.bytes, kAlign));
    }
    placed.push_back(region);
    bytes = std::max(bytes, round_up(region.offset + region.bytes, kAlign));
  }
  return bytes;
}

std::vector<Region> random_regions(std::mt19937& dice, int count, int instructions) {
  const auto roll = [&](int sides) { return int(dice() % unsigned(sides)); };
  std::vector<Region> regions(static_cast<size_t>(count));
  for (Region& region : regions) {
    region.bytes = size_t(1 + roll(4)) * size_t(1 + roll(1000));
    region.first = roll(instructions) - 1;  // -1: there from the start
    region.last = region.first + roll(roll(2) == 0 ? 3 : instructions);
  }
  return regions;
}

TEST(RegionPacking, IsThatOfTheTighterGreedyOrder) {
  std::mt19937 dice(7);
  for (int turn = 0; turn < 300; ++turn) {
    Program program;
    program.regions = random_regions(dice, 1 + turn % 40, 1 + turn % 60);
    std::vector<size_t> by_size(program.regions.size());
    std::iota(by_size.begin(), by_size.end(), size_t(0));
    std::vector<size_t> by_birth = by_size;
    const auto& regions = program.regions;
    std::ranges::stable_sort(by_size, std::ranges::greater{}, [&](size_t i) { return regions[i].bytes; });
    std::ranges::stable_sort(by_birth, std::ranges::less{}, [&](size_t i) { return regions[i].first; });
    const size_t expected = std::min(pack_plainly(regions, by_size), pack_plainly(regions, by_birth));
    pack_regions(program);
    size_t bytes = 0;
    for (size_t i = 0; i < regions.size(); ++i) {
      EXPECT_EQ(regions[i].offset % kAlign, 0u);
      bytes = std::max(bytes, regions[i].offset + regions[i].bytes);
      for (size_t j = 0; j < i; ++j) {
        const bool apart = regions[i].offset + regions[i].bytes <= regions[j].offset ||
                           regions[j].offset + regions[j].bytes <= regions[i].offset;
        EXPECT_TRUE(apart || !meet(regions[i], regions[j])) << "turn " << turn << ": " << i << ", " << j;
      }
    }
    EXPECT_EQ(round_up(bytes, kAlign), expected) << "turn " << turn;
  }
}

}  // namespace
}  // namespace zeno::zero
