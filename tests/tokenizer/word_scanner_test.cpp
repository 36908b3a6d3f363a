// The hand-written splitters against the regexes they stand for, run by PCRE2.
#include "zeno/data/tokenizer/word_scanner.h"
#include "zeno/base/utf8.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/expect_error.h"
#include "zeno/data/tokenizer/regex.h"

namespace zeno::data::tokenizer {
namespace {

constexpr WordStyle kStyles[] = {WordStyle::gpt2, WordStyle::llama3, WordStyle::qwen2};

std::vector<size_t> ends_by_regex(const Regex& regex, std::string_view text) {
  std::vector<size_t> ends;
  for (size_t at = 0; at < text.size();) {
    const auto match = regex.find(text, at);
    if (!match || match->begin != at) return {};  // these regexes leave nothing out
    ends.push_back(at = match->end);
  }
  return ends;
}

std::vector<size_t> ends_by_hand(WordStyle style, std::string_view text) {
  std::vector<size_t> ends;
  for (size_t at = 0; at < text.size();) ends.push_back(at = word_end(style, text, at));
  return ends;
}

TEST(WordScanner, EveryCharacterInEveryCompany) {
  // Each character between a letter, a space and a line end: 1.1 million of them in texts of some thousands.
  for (const WordStyle style : kStyles) {
    const Regex regex = Regex::translate(word_regex(style), "test");
    std::string text;
    for (char32_t code = 0; code < 0x110000; ++code) {
      if (code >= 0xd800 && code < 0xe000) continue;
      if (code >= 0x20000 && code % 97 != 0) continue;  // planes of ideographs and of nothing
      append_utf8(text, code);
      append_utf8(text, "a \n"[code % 3]);
      append_utf8(text, code);
      if (text.size() < 4096) continue;
      ASSERT_EQ(ends_by_hand(style, text), ends_by_regex(regex, text))
          << "before U+" << std::hex << uint32_t(code);
      text.clear();
    }
  }
}

TEST(WordScanner, RandomText) {
  std::mt19937 random(1);
  const char32_t kOften[] = {' ', ' ',  '\n',   '\r', '\t',  '\'',   's',     'S',  't',    'l',   'L',
                             'r', 'e',  'E',    'v',  'd',   'm',    0x17f,   '1',  '2',    '.',   ',',
                             '!', 0xa0, 0x3000, 0xe9, 0x301, 0x4e2d, 0x1f600, 0xbd, 0x180e, 0x200b};
  for (const WordStyle style : kStyles) {
    const Regex regex = Regex::translate(word_regex(style), "test");
    for (int round = 0; round < 3000; ++round) {
      std::string text;
      for (size_t i = 0, length = 1 + random() % 24; i < length; ++i) {
        append_utf8(text, random() % 8 ? kOften[random() % std::size(kOften)] : char32_t(random() % 0xd800));
      }
      ASSERT_EQ(ends_by_hand(style, text), ends_by_regex(regex, text)) << testing::PrintToString(text);
    }
  }
}

TEST(Regex, DiffersFromPcre2WhereOnigurumaDoes) {
  const auto matches = [](const char* pattern, const char* text) {
    return Regex::translate(pattern, "test").find(text, 0).has_value();
  };
  EXPECT_FALSE(matches("\\s", "\u180e"));  // no longer white space; PCRE2 keeps it
  EXPECT_TRUE(matches("^[\\S]$", "\u180e"));
  EXPECT_TRUE(matches("^[^\\s]$", "\u180e"));
  EXPECT_TRUE(matches("\\w", "\u0301"));
  EXPECT_TRUE(matches("\\w", "\u24b6"));
  EXPECT_FALSE(matches("\\W", "\u0301"));
  EXPECT_TRUE(matches("x$", "x\ny"));
  EXPECT_TRUE(matches("\\u00e9", "\u00e9"));
  for (const char* pattern :
       {"[a&&b]", "[a[b]]", "\\h", "\\R", "[^\\W]", "(?m:a)", "(?<n>a)", "(*ACCEPT)", "a\\"}) {
    test::expect_error(ErrorKind::data, {"place", "not supported", pattern},
                       [&] { Regex::translate(pattern, "place"); });
  }
}

}  // namespace
}  // namespace zeno::data::tokenizer
