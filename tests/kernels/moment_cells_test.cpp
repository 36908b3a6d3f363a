// Moments in eight bits: the format itself, one value at a time and in cells.
#include "zeno/kernels/moment_cells.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/every_target.h"
#include "tests/kernels/host_tensor.h"
#include "tests/kernels/scalar_cells.h"

namespace zeno {
namespace {

using Values = std::array<float, kMomentCell>;

// The cells that decode to something else when encoded again, whatever the noise, are none.
template <StateRole kRole>
void expect_stays(const MomentCell& cell) {
  const Values values = decoded<kRole>(cell);
  for (uint64_t draw = 0; draw < 3; ++draw) {
    Noise noise;
    for (size_t i = 0; i < noise.size(); ++i)
      noise[i] = draw == 2 ? ~0u : draw == 1 ? 0 : uint32_t(random_bits(1, 2, i));
    const MomentCell again = encoded<kRole>(values, noise);
    ASSERT_EQ(again.exponent, cell.exponent);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(int(again.codes[i]), int(cell.codes[i])) << i;
  }
}

// Sizes over many powers of two, with the largest of a cell close to the next one in every third.
Values mixed(uint64_t seed) {
  Values values;
  const double size = std::exp2(double(random_bits(seed, 1, 0) % 180) - 120);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = float(size * random_normal(seed, 2, i) * std::exp2(-double(random_bits(seed, 3, i) % 40)));
  }
  const float most = std::abs(*std::max_element(values.begin(), values.end(),
                                                [](float a, float b) { return std::abs(a) < std::abs(b); }));
  if (seed % 3 == 0) values[seed % 64] = float(std::exp2(std::ceil(std::log2(most))) * 1.97);
  return values;
}

template <StateRole kRole>
void expect_stable_and_close(uint64_t seed) {
  Values values = mixed(seed);
  if (kRole == StateRole::v) {
    for (float& x : values) x = x * x;
  }
  Noise noise;
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = uint32_t(random_bits(seed, 4, i));
  const MomentCell cell = encoded<kRole>(values, noise);
  expect_stays<kRole>(cell);
  const float step = MomentCode<kRole>::step_size(cell.exponent);
  const float leading = 8 * step;
  const Values stored = decoded<kRole>(cell);
  for (size_t i = 0; i < values.size(); ++i) {
    const double error = std::abs(double(stored[i]) - values[i]);
    ASSERT_LE(error, std::abs(values[i]) >= leading ? 0.125 * std::abs(values[i]) : step) << values[i];
    ASSERT_GE(stored[i] * values[i], 0) << "another sign";
    if (kRole == StateRole::v) {
      ASSERT_EQ(stored[i] > 0, values[i] > 0);
      ASSERT_GT(2 * stored[i] + 1e-45f, values[i]);
    }
  }
}

TEST(MomentCells, EncodingAgainChangesNothingAndErrorsAreBounded) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    expect_stable_and_close<StateRole::m>(seed);
    expect_stable_and_close<StateRole::v>(seed);
  }
}

// Every code of every exponent that a cell can have, each in a cell with the largest code.
template <StateRole kRole>
void expect_every_code_stays() {
  for (uint32_t exponent = 0; exponent <= 255 - MomentCode<kRole>::kLeast; ++exponent) {
    for (int first = 0; first < 256; first += 63) {
      MomentCell cell{.exponent = exponent, .codes = {MomentCode<kRole>::kMagnitude & ~7u}};
      for (int i = 1; i < kMomentCell; ++i) cell.codes[i] = uint8_t(std::min(255, first + i - 1));
      expect_stays<kRole>(cell);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(MomentCells, EveryCodeIsReadBack) {
  expect_every_code_stays<StateRole::m>();
  expect_every_code_stays<StateRole::v>();
}

// Over 2^16 draws of noise at equal distances, the mean is the value; also of one that is rounded into the
// next power of two and takes the cell with it. Except v below the smallest step, which is that step.
TEST(MomentCells, RoundingIsUnbiased) {
  const auto mean = []<StateRole kRole>(float value, float largest) {
    double sum = 0;
    Values values{};
    values[0] = largest;
    values[7] = value;
    Noise noise{};
    for (uint32_t draw = 0; draw < 0x10000; ++draw) {
      noise[7] = kRole == StateRole::v ? draw << 4 | 8 : draw << 16 | 0x8000;
      sum += decoded<kRole>(encoded<kRole>(values, noise))[7];
    }
    return sum / 0x10000;
  };
  for (float largest : {1.0f, 1.5f}) {
    for (float value :
         {1.99f, 1.9f, 1.3f, 0.77f, 0.001234f, 0x1.7p-14f, 0x1.8p-15f, 0x1.23p-16f, 0x1.4p-17f}) {
      const double step = std::max<double>(value / 8, 0x1p-17);
      EXPECT_NEAR(mean.operator()<StateRole::m>(value, largest), value, step * 0x1p-16) << value;
      EXPECT_NEAR(mean.operator()<StateRole::m>(-value, largest), -value, step * 0x1p-16) << value;
      EXPECT_NEAR(mean.operator()<StateRole::v>(value, largest), value, value / 8 * 0x1p-16) << value;
    }
    EXPECT_NEAR(mean.operator()<StateRole::m>(0x1.4p-20f, largest), 0x1.4p-20, 0x1p-33);
    EXPECT_EQ(mean.operator()<StateRole::v>(0x1.4p-40f, largest), 0x1p-33);
  }
}

TEST(MomentCells, ZeroBytesAreZeros) {
  const MomentCell zero{};
  EXPECT_EQ(decoded<StateRole::m>(zero), Values{});
  EXPECT_EQ(decoded<StateRole::v>(zero), Values{});
  expect_stays<StateRole::m>(zero);
  expect_stays<StateRole::v>(zero);
}

TEST(MomentCells, InfinityAndNanStayNonFinite) {
  for (float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf(""),
        -std::nanf(""), std::bit_cast<float>(0x7fffffffu), std::bit_cast<float>(0x7f800001u)}) {
    Values values{1.0f, -2.0f};
    values[9] = bad;
    Noise noise;
    noise.fill(~0u);
    const Values m = decoded<StateRole::m>(encoded<StateRole::m>(values, noise));
    const Values v = decoded<StateRole::v>(encoded<StateRole::v>(values, noise));
    EXPECT_FALSE(std::isfinite(m[9]));
    EXPECT_FALSE(std::isfinite(v[9]));
    EXPECT_TRUE(std::isfinite(m[0]) && std::isfinite(v[0]));
  }
}

// The vector code against one value at a time, on whole spans with a cell that is not full.
template <StateRole kRole>
void expect_spans_follow() {
  constexpr size_t n = 64 * 300 + 17;
  std::vector<float> values;
  for (uint64_t seed = 0; values.size() < n; ++seed) {
    for (float x : mixed(seed)) values.push_back(kRole == StateRole::v ? x * x : x);
  }
  values.resize(n);
  values[70] = std::numeric_limits<float>::infinity();
  values[200] = std::nanf("");
  Noise nearest;
  nearest.fill(kRole == StateRole::v ? 0x80000u : 0x80000000u);
  std::vector<MomentCell> expected;
  for (size_t at = 0; at < n; at += kMomentCell) {
    Values cell{};
    std::copy_n(values.begin() + long(at), std::min<size_t>(kMomentCell, n - at), cell.begin());
    expected.push_back(encoded<kRole>(cell, nearest));
  }
  on_every_target([&](int64_t) {
    std::vector<MomentCell> cells(size_t(moment_cells(n)));
    ASSERT_EQ(cells.size() * sizeof(MomentCell), moment_bytes(n));
    std::memset(static_cast<void*>(cells.data()), 0xff, moment_bytes(n));
    encode_moments(values, kRole, cells.data());
    EXPECT_EQ(std::memcmp(cells.data(), expected.data(), moment_bytes(n)), 0);
    std::vector<float> back(n);
    decode_moments(cells.data(), kRole, back);
    for (size_t i = 0; i < n; ++i) {
      const float one = MomentCode<kRole>::decode(cells[i / 64].codes[i % 64], cells[i / 64].exponent);
      ASSERT_EQ(std::bit_cast<uint32_t>(back[i]), std::bit_cast<uint32_t>(one)) << i;
    }
  });
}

TEST(MomentCells, SpansHaveTheBitsOfSingleValuesOnEveryTarget) {
  expect_spans_follow<StateRole::m>();
  expect_spans_follow<StateRole::v>();
}

}  // namespace
}  // namespace zeno
