// What the tokenizer knows of Unicode: general categories, white space, lower case and the four normal forms
// of a character. Tables come from unicode_tables.inc (tools/unicode_tables.py). Pure functions;
// safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace zeno::data::tokenizer {

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
