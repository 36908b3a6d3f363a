#include "zeno/data/tokenizer/word_scanner.h"

#include <array>
#include <cstdint>

#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/unicode.h"

namespace zeno::data::tokenizer {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// The four kinds of characters that the regexes tell apart.
enum Kind : uint8_t { other, letter, number, space };

std::array<Kind, 64> make_kinds() {
  std::array<Kind, 64> kinds{};
  for (size_t i = 0; i < 64; ++i) {
    const auto group = Category(i & 0x1f);
    if ((i & kSpaceBit) != 0)
      kinds[i] = space;
    else if (group <= Category::lo)
      kinds[i] = letter;
    else if (group >= Category::nd && group <= Category::no)
      kinds[i] = number;
  }
  return kinds;
}

// The kind of each ASCII character, for the common case.
constexpr std::array<Kind, 128> make_ascii() {
  std::array<Kind, 128> kinds{};
  for (int c = 0; c < 128; ++c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
      kinds[size_t(c)] = letter;
    else if (c >= '0' && c <= '9')
      kinds[size_t(c)] = number;
    else if (c == ' ' || (c >= 9 && c <= 13))
      kinds[size_t(c)] = space;
  }
  return kinds;
}
constexpr std::array<Kind, 128> kAscii = make_ascii();

struct Char {
  Kind kind;
  uint8_t bytes;
};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool ends(size_t at) const { return at >= text_.size(); }
  Char look(size_t at) const {
    const auto first = uint8_t(text_[at]);
    if (first < 0x80) return {kAscii[first], 1};
    static const std::array<Kind, 64> kinds = make_kinds();
    const Utf8Char c = decode_multibyte(text_, at);
    return {kinds[unicode_classes()[c.code]], c.bytes};
  }
  bool is(size_t at, Kind kind) const { return !ends(at) && look(at).kind == kind; }
  size_t run(size_t at, Kind kind) const {
    while (!ends(at)) {
      const Char c = look(at);
      if (c.kind != kind) break;
      at += c.bytes;
    }
    return at;
  }
  bool newline(size_t at) const { return !ends(at) && (text_[at] == '\n' || text_[at] == '\r'); }

  // 's 't 're 've 'm 'll 'd behind an apostrophe at `at`; the end, or 0.
  size_t contraction(size_t at, bool any_case) const {
    const auto letter_at = [&](size_t i) -> char {
      if (ends(at + i)) return 0;
      const char c = text_[at + i];
      return any_case && c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c;
    };
    const char first = letter_at(1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    const char second = letter_at(2);
    if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
    if (first == 'l' && second == 'l') return at + 3;
    // The long s is an s, whatever its case.
    if (any_case && text_.substr(at + 1, 2) == "\u017f") return at + 3;
    return 0;
  }

  // White space that no word in front took: up to its last line break, else all but the last character (which
  // the next word may want), else all of it.
  size_t blank(size_t at, bool lines) const {
    size_t end = at, last = at, after_break = 0;
    while (!ends(end)) {
      const Char c = look(end);
      if (c.kind != space) break;
      if (newline(end)) after_break = end + 1;
      last = end;
      end += c.bytes;
    }
    if (lines && after_break != 0) return after_break;
    return ends(end) || last == at ? end : last;
  }

 private:
  std::string_view text_;
};

size_t gpt2_end(const Scanner& scan, std::string_view text, size_t at) {
  if (text[at] == '\'') {
    if (const size_t end = scan.contraction(at, false)) return end;
  }
  const size_t body = text[at] == ' ' && !scan.ends(at + 1) ? at + 1 : at;
  const Kind kind = scan.look(body).kind;
  return kind == space ? scan.blank(at, false) : scan.run(body, kind);
}

size_t llama3_end(const Scanner& scan, std::string_view text, size_t at, int digits) {
  if (text[at] == '\'') {
    if (const size_t end = scan.contraction(at, true)) return end;
  }
  const Char first = scan.look(at);
  if (first.kind == letter) return scan.run(at, letter);
  if (first.kind == number) {
    for (; digits > 0 && scan.is(at, number); --digits) at += scan.look(at).bytes;
    return at;
  }
  const size_t behind = at + first.bytes;
  if (!scan.newline(at) && scan.is(behind, letter)) return scan.run(behind, letter);
  if (first.kind == other || (text[at] == ' ' && scan.is(behind, other))) {
    size_t end = scan.run(first.kind == other ? at : behind, other);
    while (scan.newline(end)) ++end;
    return end;
  }
  return scan.blank(at, true);
}

}  // namespace

std::string_view word_regex(WordStyle style) {
  return style == WordStyle::gpt2 ? kGpt2 : style == WordStyle::llama3 ? kLlama3 : kQwen2;
}

std::optional<WordStyle> word_style(std::string_view regex) {
  for (const WordStyle style : {WordStyle::gpt2, WordStyle::llama3, WordStyle::qwen2}) {
    if (regex == word_regex(style)) return style;
  }
  return std::nullopt;
}

size_t word_end(WordStyle style, std::string_view text, size_t at) {
  const Scanner scan(text);
  if (style == WordStyle::gpt2) return gpt2_end(scan, text, at);
  return llama3_end(scan, text, at, style == WordStyle::llama3 ? 3 : 1);
}

}  // namespace zeno::data::tokenizer
