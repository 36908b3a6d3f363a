#include "zeno/kernels/master_rest.h"

#include <gtest/gtest.h>

#include <cmath>

namespace zeno {
namespace {

// Every lower half behind upper halves of all sizes, both signs, odd and even.
TEST(MasterRest, TheCopyIsTheNearestAndTheRestGivesTheMasterBack) {
  for (uint32_t high : {0x0000u, 0x0001u, 0x007fu, 0x0080u, 0x3f80u, 0x3f81u, 0x407fu, 0x7f7eu, 0x8000u,
                        0x8001u, 0xbf80u, 0xbfffu, 0xff7eu}) {
    for (uint32_t low = 0; low < 0x10000u; ++low) {
      const uint32_t bits = high << 16 | low;
      const uint16_t copy = master_copy(bits);
      ASSERT_EQ(joined_master(copy, master_rest(bits)), bits);
      const float master = std::bit_cast<float>(bits), rounded = float(copy_of_master<BF16>(master));
      ASSERT_EQ(std::bit_cast<uint32_t>(rounded), uint32_t(copy) << 16);
      const float even = float(BF16(master));
      if (low != 0x8000u) {
        ASSERT_EQ(rounded, even) << bits;
      } else {
        ASSERT_EQ(std::abs(double(rounded) - master), std::abs(double(even) - master));
        ASSERT_GT(std::abs(rounded), std::abs(master));
      }
    }
  }
}

TEST(MasterRest, WhatIsNotFiniteStaysSo) {
  for (float value : {INFINITY, -INFINITY}) EXPECT_EQ(float(copy_of_master<BF16>(value)), value);
  // A CPU makes the first, a GPU the last.
  for (uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7fc08001u, 0x7f800001u, 0x7f80ffffu, 0x7fff7fffu,
                        0x7fff8000u, 0xffffffffu, 0x7fffffffu}) {
    const float master = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(float(copy_of_master<BF16>(master)))) << bits;
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(joined_master(master_copy(bits), master_rest(bits)))))
        << bits;
  }
  EXPECT_EQ(float(copy_of_master<BF16>(std::bit_cast<float>(0x7f7fffffu))), INFINITY);
}

TEST(MasterRest, ManyAtOnceAndFromAnyAddress) {
  std::vector<std::byte> memory(4 * 101 + 1), back(memory.size());
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = std::byte(i * 37 + i / 7);
  std::vector<uint16_t> copies(101);
  std::vector<int16_t> rests(101);
  split_masters(memory.data() + 1, copies, rests);
  back[0] = memory[0];
  join_masters(copies, rests, back.data() + 1);
  EXPECT_EQ(back, memory);
}

}  // namespace
}  // namespace zeno
