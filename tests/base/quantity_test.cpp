#include "zeno/base/quantity.h"

#include <gtest/gtest.h>

namespace zeno {
namespace {

TEST(Quantity, CountsAsPeopleWriteThem) {
  EXPECT_EQ(parse_count("7.5e9"), 7.5e9);
  EXPECT_EQ(parse_count("7.5B"), 7.5e9);
  EXPECT_EQ(parse_count("7.5 b"), 7.5e9);
  EXPECT_EQ(parse_count("350M"), 350e6);
  EXPECT_EQ(parse_count("1T"), 1e12);
  EXPECT_EQ(parse_count("20k"), 20e3);
  EXPECT_EQ(parse_count("12"), 12);
  for (const char* bad : {"", "B", "-3", "0", "7.5X", "7.5BB", "nan", "inf", "1e999", "7,5B", "0x10"})
    EXPECT_FALSE(parse_count(bad)) << bad;
}

TEST(Quantity, CountsInWords) {
  EXPECT_EQ(count_in_words(7.5e9), "7.5 billion");
  EXPECT_EQ(count_in_words(1e12), "1 trillion");
  EXPECT_EQ(count_in_words(123456), "123456");
}

TEST(Quantity, CountsInDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(1234), "1,234");
  EXPECT_EQ(format_count(123456), "123,456");
  EXPECT_EQ(format_count(1235814400), "1,235,814,400");
  EXPECT_EQ(format_count(-123456), "-123,456");
  EXPECT_EQ(format_percent(0.6149), "61.5 %");
}

TEST(Quantity, SizesNeedAUnit) {
  EXPECT_EQ(parse_bytes("80GB"), 80e9);
  EXPECT_EQ(parse_bytes("80gb"), 80e9);
  EXPECT_EQ(parse_bytes("80 GiB"), 80.0 * 1024 * 1024 * 1024);
  EXPECT_EQ(parse_bytes("1.5TB"), 1.5e12);
  EXPECT_EQ(parse_bytes("1TiB"), 1024.0 * 1024 * 1024 * 1024);
  EXPECT_EQ(parse_bytes("512B"), 512);
  EXPECT_EQ(parse_bytes("1000000TiB"), 1e6 * 1024 * 1024 * 1024 * 1024);
  for (const char* bad : {"", "80", "80G", "GB", "-1GB", "0GB", "80iB", "80GBs", "infGB", "1e30TB", "1e300B",
                          "1048577TiB", "1e-30TB", "0.5B"})
    EXPECT_FALSE(parse_bytes(bad)) << bad;
}

}  // namespace
}  // namespace zeno
