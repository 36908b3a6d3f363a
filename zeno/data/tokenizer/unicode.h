// What the tokenizer knows of Unicode: UTF-8, general categories, white space, lower case and the four
// normal forms of a character. Tables come from unicode_tables.inc (tools/unicode_tables.py). Pure functions;
// safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace zeno::data::tokenizer {

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

// General categories in the order of the tables; the groups (letters, marks, numbers, …) are ranges.
enum class Category : uint8_t {
  lu,
  ll,
  lt,
  lm,
  lo,  // letters
  mn,
  mc,
  me,  // marks
  nd,
  nl,
  no,  // numbers
  pc,
  pd,
  ps,
  pe,
  pi,
  pf,
  po,  // punctuation
  sm,
  sc,
  sk,
  so,  // symbols
  zs,
  zl,
  zp,  // separators
  cc,
  cf,
  cs,
  co,
  cn  // others
};

// One byte per code point: the category, and kSpaceBit for White_Space.
constexpr uint8_t kSpaceBit = 0x20;
const uint8_t* unicode_classes();

inline Category category(char32_t code) { return Category(unicode_classes()[code] & 0x1f); }
inline bool is_space(char32_t code) { return (unicode_classes()[code] & kSpaceBit) != 0; }
inline bool is_letter(char32_t code) { return category(code) <= Category::lo; }
inline bool is_mark(char32_t code) {
  return category(code) >= Category::mn && category(code) <= Category::me;
}
inline bool is_number(char32_t code) {
  return category(code) >= Category::nd && category(code) <= Category::no;
}
inline bool is_ascii_punctuation(char32_t code) {
  return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
         (code >= '{' && code <= '~');
}
// Punctuation as the Hugging Face library has it: that of Unicode 8, and the ASCII symbols.
bool is_punctuation(char32_t code);
// \w of the Hugging Face library: Alphabetic, marks, decimal digits, connectors, joiners.
bool is_word(char32_t code);

// Lower case of one character: itself, one other, or (U+0130 only) two.
std::u32string_view to_lower(char32_t code, char32_t (&buffer)[2]);

// Canonical combining class.
uint8_t combining_class(char32_t code);
// Full decomposition, canonical or compatible; false: the character stands for itself.
bool decompose(char32_t code, bool compatible, std::u32string& out);
// The character that first + second compose to, or 0.
char32_t compose(char32_t first, char32_t second);

}  // namespace zeno::data::tokenizer
