#include "zeno/report/json_text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "zeno/base/rng.h"

namespace zeno::report {
namespace {

using nlohmann::json;

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

TEST(JsonNumber, RoundTripsEveryFiniteDouble) {
  int finite = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    const double value = std::bit_cast<double>(random_bits(1, 2, i));  // all exponents, both signs
    if (!std::isfinite(value)) continue;
    ++finite;
    const std::string text = json_number(value);
    ASSERT_TRUE(same_bits(json::parse(text).get<double>(), value)) << text;
    ASSERT_LE(text.size(), 24u);
  }
  EXPECT_GT(finite, 99000);
  for (const double value : {0.1, 1e-5, 5e8, 1.0 / 3, 1e308, 5e-324, double(0.1f)}) {
    EXPECT_TRUE(same_bits(json::parse(json_number(value)).get<double>(), value));
  }
  EXPECT_EQ(json_number(0.1), "0.1");
  EXPECT_EQ(json_number(2), "2");
}

TEST(JsonNumber, NullForWhatJsonDoesNotHave) {
  EXPECT_EQ(json_number(std::nan("")), "null");
  EXPECT_EQ(json_number(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(json_number(-std::numeric_limits<double>::infinity()), "null");
}

TEST(JsonString, IsAlwaysValid) {
  for (const std::string text : {"", "plain", "a\"b\\c", "line\nend\t\x01", "größe ≥ 3"}) {
    EXPECT_EQ(json::parse(json_string(text)).get<std::string>(), text);
  }
  EXPECT_EQ(json::parse(json_string("a\xff\xfe")).get<std::string>(), "a\ufffd\ufffd");
}

}  // namespace
}  // namespace zeno::report
