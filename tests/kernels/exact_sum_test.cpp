#include "zeno/kernels/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "zeno/base/rng.h"

namespace zeno {
namespace {

// A double with random mantissa and sign and an exponent in [low, high] (biased, 0 = denormal).
double random_double(uint64_t seed, uint64_t index, int low, int high) {
  const uint64_t bits = random_bits(seed, 1, index);
  const uint64_t exponent = uint64_t(low) + random_bits(seed, 2, index) % uint64_t(high - low + 1);
  return std::bit_cast<double>((bits & 0x800fffffffffffffull) | exponent << 52);
}

double sum_of(const std::vector<double>& terms) {
  ExactSum sum;
  for (double t : terms) sum.add(t);
  return sum.value();
}

// Independent oracle: Shewchuk's exact expansions, rounded by summing the non-overlapping parts from the top
// with a correction for ties.
double expansion_sum(const std::vector<double>& terms) {
  std::vector<double> parts;
  for (double x : terms) {
    size_t kept = 0;
    for (size_t j = 0; j < parts.size(); ++j) {
      double y = parts[j];
      if (std::abs(x) < std::abs(y)) std::swap(x, y);
      const double high = x + y;
      const double low = y - (high - x);
      if (low != 0) parts[kept++] = low;
      x = high;
    }
    parts.resize(kept);
    parts.push_back(x);
  }
  double high = 0, low = 0;
  int n = int(parts.size());
  while (n > 0) {
    const double x = high;
    const double y = parts[size_t(--n)];
    high = x + y;
    low = y - (high - x);
    if (low != 0) break;
  }
  if (n > 0 && ((low < 0 && parts[size_t(n - 1)] < 0) || (low > 0 && parts[size_t(n - 1)] > 0))) {
    const double y = low * 2;
    const double x = high + y;
    if (y == x - high) high = x;
  }
  return high;
}

struct Range {
  int low, high;
};

TEST(ExactSum, IsTheCorrectlyRoundedSumForAnyMagnitudes) {
  const Range ranges[] = {{0, 0}, {0, 3}, {1, 60}, {1000, 1060}, {900, 1150}, {0, 2000}, {1990, 2030}};
  for (const Range range : ranges) {
    for (uint64_t trial = 0; trial < 200; ++trial) {
      std::vector<double> terms;
      const uint64_t count = 1 + random_bits(trial, 9, uint64_t(range.low)) % 40;
      for (uint64_t i = 0; i < count; ++i) terms.push_back(random_double(trial, i, range.low, range.high));
      // Cancellation: half the trials bring most terms back with the other sign.
      if (trial % 2) {
        for (uint64_t i = 0; i + 1 < count; ++i) terms.push_back(-terms[i]);
      }
      ASSERT_EQ(std::bit_cast<uint64_t>(sum_of(terms)), std::bit_cast<uint64_t>(expansion_sum(terms) + 0.0))
          << "exponents " << range.low << ".." << range.high << " trial " << trial;
    }
  }
}

TEST(ExactSum, TiesAndStickyBitsRoundToEven) {
  const double ulp = 0x1p-52;
  EXPECT_EQ(sum_of({1.0, ulp / 2}), 1.0);
  EXPECT_EQ(sum_of({1.0, ulp / 2, 0x1p-1074}), 1.0 + ulp);
  EXPECT_EQ(sum_of({1.0, ulp / 2, -0x1p-1074}), 1.0);
  EXPECT_EQ(sum_of({1.0 + ulp, ulp / 2}), 1.0 + 2 * ulp);
  EXPECT_EQ(sum_of({-1.0, -ulp / 2, -0x1p-300}), -1.0 - ulp);
}

TEST(ExactSum, OrderAndSplitDoNotMatter) {
  for (uint64_t trial = 0; trial < 100; ++trial) {
    std::vector<double> terms;
    for (uint64_t i = 0; i < 300; ++i) terms.push_back(random_double(trial, i, 0, 2030));
    const uint64_t expected = std::bit_cast<uint64_t>(sum_of(terms));
    for (uint64_t i = terms.size() - 1; i > 0; --i)
      std::swap(terms[i], terms[random_bits(trial, 5, i) % (i + 1)]);
    ExactSum parts[4];
    for (uint64_t i = 0; i < terms.size(); ++i) parts[random_bits(trial, 6, i) % 4].add(terms[i]);
    parts[2].add(parts[0]);
    parts[3].add(parts[1]);
    parts[3].add(parts[2]);
    ASSERT_EQ(std::bit_cast<uint64_t>(parts[3].value()), expected) << trial;
  }
}

TEST(ExactSum, ZeroesAndLimits) {
  const double max = std::numeric_limits<double>::max(), min = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(std::bit_cast<uint64_t>(sum_of({})), 0u);
  EXPECT_EQ(std::bit_cast<uint64_t>(sum_of({-0.0, -0.0})), 0u);
  EXPECT_EQ(std::bit_cast<uint64_t>(sum_of({1e300, -1e300})), 0u);
  EXPECT_EQ(sum_of({max, max, -max}), max);  // the running sum may leave the range of double
  EXPECT_EQ(sum_of({max, max}), std::numeric_limits<double>::infinity());
  EXPECT_EQ(sum_of({-max, -max}), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(sum_of({max, min, -max}), min);
  EXPECT_EQ(sum_of({-min, -min, -min}), -3 * min);
}

TEST(ExactSum, NonFiniteTermsMakeItNaN) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(sum_of({1.0, inf})));
  EXPECT_TRUE(std::isnan(sum_of({-inf, 2.0})));
  EXPECT_TRUE(std::isnan(sum_of({std::nan(""), 2.0})));
  ExactSum bad, good;
  bad.add(inf);
  good.add(1.0);
  good.add(bad);
  EXPECT_TRUE(std::isnan(good.value()));
}

TEST(ExactSum, CarriesSurviveManyTermsOfOneSign) {
  ExactSum sum;
  const double term = std::nextafter(2.0, 1.0);  // all mantissa bits set
  for (int i = 0; i < 1 << 20; ++i) sum.add(term);
  EXPECT_EQ(sum.value(), term * 0x1p20);
  ExactSum doubled;
  for (int i = 0; i < 1000; ++i) doubled.add(sum);
  for (int i = 0; i < 999; ++i) {
    ExactSum negative;
    negative.add(-term * 0x1p20);
    doubled.add(negative);
  }
  EXPECT_EQ(doubled.value(), term * 0x1p20);
}

}  // namespace
}  // namespace zeno
