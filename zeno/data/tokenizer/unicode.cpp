#include "zeno/data/tokenizer/unicode.h"

#include <algorithm>
#include <span>
#include <unordered_map>
#include <vector>

#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/regex.h"

namespace zeno::data::tokenizer {
namespace {

#include "zeno/data/tokenizer/unicode_tables.inc"

constexpr size_t kCodes = 0x110000;
constexpr char32_t kHangulBase = 0xac00, kLeadBase = 0x1100, kVowelBase = 0x1161, kTailBase = 0x11a7;
constexpr char32_t kLeads = 19, kVowels = 21, kTails = 28, kHangul = kLeads * kVowels * kTails;
constexpr char32_t kDottedCapitalI = 0x130, kCombiningDot = 0x307;

constexpr char32_t kSpaces[][2] = {{0x09, 0x0d},     {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},
                                   {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f},
                                   {0x205f, 0x205f}, {0x3000, 0x3000}};

// Punctuation since Unicode 9, which the library does not know.
constexpr char32_t kNewPunctuation[][2] = {
    {0x61d, 0x61d},     {0x9fd, 0x9fd},     {0xa76, 0xa76},     {0xc77, 0xc77},     {0xc84, 0xc84},
    {0x1b7d, 0x1b7e},   {0x2e43, 0x2e4f},   {0x2e52, 0x2e5d},   {0x10ead, 0x10ead}, {0x10f55, 0x10f59},
    {0x10f86, 0x10f89}, {0x1144b, 0x1144f}, {0x1145a, 0x1145b}, {0x1145d, 0x1145d}, {0x11660, 0x1166c},
    {0x116b9, 0x116b9}, {0x1183b, 0x1183b}, {0x11944, 0x11946}, {0x119e2, 0x119e2}, {0x11a3f, 0x11a46},
    {0x11a9a, 0x11a9c}, {0x11a9e, 0x11aa2}, {0x11c41, 0x11c45}, {0x11c70, 0x11c71}, {0x11ef7, 0x11ef8},
    {0x11fff, 0x11fff}, {0x12ff1, 0x12ff2}, {0x16e97, 0x16e9a}, {0x16fe2, 0x16fe2}, {0x1e95e, 0x1e95f}};

std::vector<uint8_t> expand(std::span<const uint32_t> runs) {
  std::vector<uint8_t> values(kCodes);
  for (size_t i = 0; i < runs.size(); ++i) {
    const size_t end = i + 1 < runs.size() ? runs[i + 1] >> 8 : kCodes;
    std::fill(values.begin() + (runs[i] >> 8), values.begin() + ptrdiff_t(end), uint8_t(runs[i]));
  }
  return values;
}

std::vector<uint8_t> make_classes() {
  std::vector<uint8_t> classes = expand(kCategoryRuns);
  for (const auto& [first, last] : kSpaces) {
    for (char32_t code = first; code <= last; ++code) classes[code] |= kSpaceBit;
  }
  return classes;
}

// Finds `code` in a sorted table of [code, value].
const uint32_t* find_pair(std::span<const uint32_t> table, char32_t code) {
  size_t low = 0, high = table.size() / 2;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (table[2 * middle] < code)
      low = middle + 1;
    else
      high = middle;
  }
  return 2 * low < table.size() && table[2 * low] == code ? &table[2 * low + 1] : nullptr;
}

}  // namespace

const uint8_t* unicode_classes() {
  static const std::vector<uint8_t> classes = make_classes();
  return classes.data();
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) return is_ascii_punctuation(code);
  if (code == 0x166d || code == 0x111c9) return true;  // no longer, but in Unicode 8
  if (category(code) < Category::pc || category(code) > Category::po) return false;
  return std::ranges::none_of(kNewPunctuation,
                              [&](const auto& range) { return code >= range[0] && code <= range[1]; });
}

bool is_word(char32_t code) {
  if (code < 0x80) return is_letter(code) || is_number(code) || code == '_';
  static const Regex word = Regex::native("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]");
  std::string text;
  append_utf8(text, code);
  return word.find(text, 0).has_value();
}

std::u32string_view to_lower(char32_t code, char32_t (&buffer)[2]) {
  buffer[0] = code;
  if (code < 0x80) {
    if (code >= 'A' && code <= 'Z') buffer[0] = code + ('a' - 'A');
    return {buffer, 1};
  }
  if (code == kDottedCapitalI) {
    buffer[0] = 'i';
    buffer[1] = kCombiningDot;
    return {buffer, 2};
  }
  if (const uint32_t* lower = find_pair(kLowercase, code)) buffer[0] = *lower;
  return {buffer, 1};
}

uint8_t combining_class(char32_t code) {
  if (code < 0x300) return 0;
  static const std::vector<uint8_t> classes = expand(kClassRuns);
  return classes[code];
}

bool decompose(char32_t code, bool compatible, std::u32string& out) {
  if (code < 0x80) return false;
  if (code - kHangulBase < kHangul) {
    const char32_t index = code - kHangulBase;
    out = {kLeadBase + index / (kVowels * kTails), kVowelBase + index / kTails % kVowels};
    if (index % kTails != 0) out += kTailBase + index % kTails;
    return true;
  }
  const uint32_t* entry = compatible ? find_pair(kNfkdIndex, code) : find_pair(kNfdIndex, code);
  if (entry == nullptr) return false;
  const uint32_t* chars = (compatible ? kNfkdChars : kNfdChars) + (*entry >> 8);
  out.assign(chars, chars + (*entry & 0xff));
  return true;
}

char32_t compose(char32_t first, char32_t second) {
  if (first - kLeadBase < kLeads && second - kVowelBase < kVowels) {
    return kHangulBase + ((first - kLeadBase) * kVowels + (second - kVowelBase)) * kTails;
  }
  if (first - kHangulBase < kHangul && (first - kHangulBase) % kTails == 0 &&
      second - kTailBase - 1 < kTails - 1) {
    return first + (second - kTailBase);
  }
  static const auto pairs = [] {
    std::unordered_map<uint64_t, char32_t> map;
    for (size_t i = 0; i < std::size(kCompositions); i += 3) {
      map.emplace(uint64_t(kCompositions[i]) << 32 | kCompositions[i + 1], kCompositions[i + 2]);
    }
    return map;
  }();
  const auto found = pairs.find(uint64_t(first) << 32 | second);
  return found == pairs.end() ? 0 : found->second;
}

}  // namespace zeno::data::tokenizer
