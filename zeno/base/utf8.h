// Characters of UTF-8 text, one at a time. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace zeno {

constexpr char32_t kReplacementCharacter = 0xfffd;

// A character of UTF-8 text. Bytes that are none read as U+FFFD of one byte with `valid` off.
struct Utf8Char {
  char32_t code;
  uint8_t bytes;
  bool valid;
};
Utf8Char decode_multibyte(std::string_view text, size_t at);
inline Utf8Char decode_char(std::string_view text, size_t at) {
  const auto first = uint8_t(text[at]);
  if (first < 0x80) return {first, 1, true};
  return decode_multibyte(text, at);
}
// The character that ends before byte `end` > 0.
Utf8Char decode_char_before(std::string_view text, size_t end);

void append_utf8(std::string& text, char32_t code);
bool is_valid_utf8(std::string_view text);
// Length of the longest valid beginning of text[at..].
size_t valid_utf8_run(std::string_view text, size_t at);
// At most `bytes` of a text for a message, with "…" where it was cut; line breaks and other control
// characters become spaces.
std::string shortened(std::string_view text, size_t bytes);

}  // namespace zeno
