#include "zeno/data/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace zeno::data {
namespace {

bool is_bijection(uint64_t n, uint64_t key) {
  std::vector<bool> seen(n);
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t j = permute(i, n, key);
    if (j >= n || seen[j]) return false;
    seen[j] = true;
  }
  return true;
}

TEST(Permutation, IsABijectionForEverySize) {
  for (uint64_t n = 1; n <= 600; ++n) {
    for (uint64_t key = 0; key < 3; ++key) ASSERT_TRUE(is_bijection(n, key)) << n;
  }
  for (const uint64_t n : {4095u, 4096u, 4097u, 65537u, 200003u}) ASSERT_TRUE(is_bijection(n, 99)) << n;
}

TEST(Permutation, StaysInRangeForHugeSizes) {
  const uint64_t n = (uint64_t(1) << 62) - 1;
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < 1000; ++i) seen.insert(permute(n - 1 - i, n, 5));
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_LT(*seen.rbegin(), n);
}

// Each index must go to each place about equally often over the keys.
TEST(Permutation, IsFairOverKeys) {
  for (const uint64_t n : {2u, 3u, 5u, 12u}) {
    constexpr int kKeys = 4000;
    std::vector<int> hits(n * n);
    for (uint64_t key = 0; key < kKeys; ++key) {
      for (uint64_t i = 0; i < n; ++i) ++hits[i * n + permute(i, n, key)];
    }
    const double expected = double(kKeys) / double(n);
    for (const int count : hits) EXPECT_NEAR(count, expected, 6 * std::sqrt(expected)) << n;
  }
}

TEST(Permutation, NeighboursPart) {
  const uint64_t n = 10000;
  uint64_t close = 0;
  for (uint64_t i = 0; i + 1 < n; ++i) {
    const int64_t d = int64_t(permute(i, n, 1)) - int64_t(permute(i + 1, n, 1));
    close += std::abs(d) < 100;
  }
  EXPECT_LT(close, 400u);  // 2 % by chance
}

std::vector<int64_t> epoch_of(const Sampler& sampler, int64_t first, int64_t count) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < count; ++i) result.push_back(sampler.sequence(first + i));
  return result;
}

TEST(Sampler, VisitsEachSequenceOncePerEpoch) {
  const Sampler sampler(12, 4, 7, true);
  EXPECT_EQ(sampler.steps_per_epoch(), 3);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const auto order = epoch_of(sampler, epoch * 12, 12);
    EXPECT_EQ(std::set(order.begin(), order.end()).size(), 12u);
    EXPECT_EQ(sampler.place(epoch * 12 + 5).epoch, epoch);
    EXPECT_EQ(sampler.place(epoch * 12 + 5).index, 5);
  }
  EXPECT_NE(epoch_of(sampler, 0, 12), epoch_of(sampler, 12, 12));
  EXPECT_NE(epoch_of(sampler, 0, 12), epoch_of(Sampler(12, 4, 8, true), 0, 12));
  EXPECT_EQ(epoch_of(sampler, 0, 24), epoch_of(Sampler(12, 4, 7, true), 0, 24));
}

TEST(Sampler, AnEpochEndsWithItsStep) {
  const Sampler sampler(14, 4, 7, true);
  EXPECT_EQ(sampler.steps_per_epoch(), 4);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    auto order = epoch_of(sampler, epoch * 16, 16);
    EXPECT_EQ(order[14], Sampler::kEmpty);
    EXPECT_EQ(order[15], Sampler::kEmpty);
    order.resize(14);
    EXPECT_EQ(std::set(order.begin(), order.end()).size(), 14u);
    EXPECT_EQ(sampler.place(epoch * 16 + 15).epoch, epoch);
  }
}

TEST(Sampler, ShortDataLeavesPlacesEmpty) {
  const Sampler sampler(3, 8, 7, false);
  EXPECT_EQ(sampler.steps_per_epoch(), 1);
  EXPECT_EQ(epoch_of(sampler, 8, 8), (std::vector<int64_t>{0, 1, 2, -1, -1, -1, -1, -1}));
}

TEST(Sampler, KeepsTheOrderWithoutShuffle) {
  const Sampler sampler(5, 2, 7, false);
  EXPECT_EQ(epoch_of(sampler, 0, 8), (std::vector<int64_t>{0, 1, 2, 3, 4, -1, 0, 1}));
}

}  // namespace
}  // namespace zeno::data
