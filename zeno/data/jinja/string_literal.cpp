#include "zeno/data/jinja/string_literal.h"

#include <fmt/core.h>
#include <cstdint>

#include <stdexcept>

#include "zeno/base/utf8.h"
#include "zeno/data/jinja/unicode.h"

namespace zeno::data::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') return (c | 0x20) - 'a' + 10;
  return 99;
}

// Reads up to `most` digits at `at`, which moves behind them.
char32_t number(std::string_view text, size_t& at, size_t least, size_t most, int base) {
  char32_t value = 0;
  size_t count = 0;
  for (; count < most && at < text.size() && digit_value(text[at]) < base; ++count, ++at) {
    value = value * char32_t(base) + char32_t(digit_value(text[at]));
  }
  if (count < least) throw std::invalid_argument("a string has a truncated \\x, \\u or \\U escape");
  if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
    throw std::invalid_argument(
        fmt::format("a string has an escape for an invalid code point: {:#x}", uint32_t(value)));
  }
  return value;
}

}  // namespace

std::string unescaped(std::string_view text) {
  static constexpr std::string_view letters = "abfnrtv\\'\"", meanings = "\a\b\f\n\r\t\v\\'\"";
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      out += text[at++];
      continue;
    }
    const char c = text[at + 1];
    const size_t known = letters.find(c);
    at += 2;
    if (known != letters.npos) {
      out += meanings[known];
    } else if (c >= '0' && c <= '7') {
      append_utf8(out, number(text, --at, 1, 3, 8));
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      append_utf8(out, number(text, at, digits, digits, 16));
    } else if (c == 'N') {
      throw std::invalid_argument("a string has a \\N escape; write the character itself");
    } else if (c != '\n') {  // an escaped newline is nothing; an unknown escape stays as it is
      out += '\\';
      --at;
      const size_t begin = at;
      next_point(text, at);
      out += text.substr(begin, at - begin);
    }
  }
  return out;
}

}  // namespace zeno::data::jinja
