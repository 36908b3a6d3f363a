#include "zeno/base/utf8.h"

#include <gtest/gtest.h>

namespace zeno {
namespace {

bool surrogate(char32_t code) { return code >= 0xd800 && code < 0xe000; }

TEST(Utf8, EveryCharacterComesBackFromBothSides) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    std::string text;
    append_utf8(text, code);
    const Utf8Char c = decode_char(text, 0), before = decode_char_before("é" + text, 2 + text.size());
    ASSERT_EQ(c.valid, !surrogate(code)) << uint32_t(code);
    if (!c.valid) continue;
    ASSERT_EQ(c.code, code);
    ASSERT_EQ(before.code, code);
    ASSERT_EQ(c.bytes, text.size());
    ASSERT_TRUE(is_valid_utf8(text));
    for (size_t cut = 1; cut < text.size(); ++cut) ASSERT_FALSE(is_valid_utf8(text.substr(0, cut)));
  }
}

// Whatever three bytes are, they are either the one encoding of their characters or not valid.
TEST(Utf8, NoCharacterHasTwoEncodings) {
  for (uint32_t bytes = 0; bytes < 1u << 24; bytes += 1 + bytes % 7) {
    const std::string text{char(bytes >> 16), char(bytes >> 8), char(bytes)};
    std::string again;
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_char(text, at);
      if (!c.valid) break;
      append_utf8(again, c.code);
      at += c.bytes;
    }
    ASSERT_EQ(is_valid_utf8(text), again == text) << bytes;
    ASSERT_EQ(again, text.substr(0, valid_utf8_run(text, 0))) << bytes;
  }
}

TEST(Utf8, OverlongAndTooLargeFormsAreRefused) {
  for (const char* text :
       {"\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xff"})
    EXPECT_FALSE(is_valid_utf8(text)) << text;
  EXPECT_EQ(valid_utf8_run("twelve chars\xff", 2), 10u);
}

}  // namespace
}  // namespace zeno
