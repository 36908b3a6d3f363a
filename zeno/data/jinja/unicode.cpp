#include "zeno/data/jinja/unicode.h"

#include <locale.h>
#include <wctype.h>

#include <functional>

#include "zeno/base/utf8.h"

namespace zeno::data::jinja {
namespace {

// Letters and their case from the C library's own Unicode tables, whatever the locale of the process is.
locale_t unicode_tables() {
  static const locale_t tables = newlocale(LC_CTYPE_MASK, "C.UTF-8", locale_t(0));
  return tables;
}

bool in_class(char32_t point, int (*test)(wint_t, locale_t)) {
  return unicode_tables() && test(wint_t(point), unicode_tables()) != 0;
}

char32_t upper_of(char32_t point) {
  return unicode_tables() ? char32_t(towupper_l(wint_t(point), unicode_tables())) : point;
}
char32_t lower_of(char32_t point) {
  return unicode_tables() ? char32_t(towlower_l(wint_t(point), unicode_tables())) : point;
}

bool is_cased(char32_t point) { return is_upper(point) || is_lower(point); }

void append_upper(std::string& text, char32_t point) {
  if (point == 0xdf) {
    text += "SS";  // the one letter of everyday text whose capital is two
  } else {
    append_utf8(text, upper_of(point));
  }
}

std::string_view strip_left_if(std::string_view text, const std::function<bool(char32_t)>& drop) {
  size_t at = 0;
  while (at < text.size()) {
    size_t after = at;
    if (!drop(next_point(text, after))) break;
    at = after;
  }
  return text.substr(at);
}

std::string_view strip_right_if(std::string_view text, const std::function<bool(char32_t)>& drop) {
  while (!text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
    size_t after = at;
    if (!drop(next_point(text, after))) break;
    text = text.substr(0, at);
  }
  return text;
}

}  // namespace

char32_t next_point(std::string_view text, size_t& at) {
  const Utf8Char c = decode_char(text, at);
  at += c.bytes;
  return c.code;
}

std::u32string points(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) out += next_point(text, at);
  return out;
}

std::string from_points(std::u32string_view list) {
  std::string out;
  out.reserve(list.size());
  for (const char32_t point : list) append_utf8(out, point);
  return out;
}

size_t point_count(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

bool is_space(char32_t point) {
  return (point >= 0x09 && point <= 0x0d) || (point >= 0x1c && point <= 0x20) || point == 0x85 ||
         point == 0xa0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200a) || point == 0x2028 ||
         point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

bool is_alpha(char32_t point) {
  if (point < 0x80) return (point | 0x20) >= 'a' && (point | 0x20) <= 'z';
  return in_class(point, iswalpha_l) && !is_digit(point);
}

bool is_digit(char32_t point) {
  if (point < 0x80) return point >= '0' && point <= '9';
  return point == 0xb2 || point == 0xb3 || point == 0xb9 || (point >= 0x660 && point <= 0x669) ||
         (point >= 0x966 && point <= 0x96f) || (point >= 0xff10 && point <= 0xff19);
}

bool is_upper(char32_t point) { return in_class(point, iswupper_l); }
bool is_lower(char32_t point) { return in_class(point, iswlower_l); }

bool is_printable(char32_t point) {
  if (point < 0x7f) return point >= 0x20;
  if (point <= 0xa0 || point == 0xad || is_space(point)) return false;
  const bool format = (point >= 0x200b && point <= 0x200f) || (point >= 0x202a && point <= 0x202e) ||
                      (point >= 0x2060 && point <= 0x206f) || point == 0xfeff ||
                      (point >= 0xfff9 && point <= 0xfffb) || (point >= 0xe0001 && point <= 0xe007f);
  const bool unassigned = (point >= 0xe000 && point <= 0xf8ff) || point >= 0xf0000;
  return !format && !unassigned && in_class(point, iswprint_l);
}

std::string to_upper(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) append_upper(out, next_point(text, at));
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) append_utf8(out, lower_of(next_point(text, at)));
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t point = next_point(text, at);
    append_utf8(out, in_word ? lower_of(point) : upper_of(point));
    in_word = is_cased(point);
  }
  return out;
}

std::string to_swapped(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char32_t point = next_point(text, at);
    if (is_upper(point)) {
      append_utf8(out, lower_of(point));
    } else {
      append_upper(out, point);
    }
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool first = at == 0;
    const char32_t point = next_point(text, at);
    append_utf8(out, first ? upper_of(point) : lower_of(point));
  }
  return out;
}

std::string_view strip_left(std::string_view text) { return strip_left_if(text, is_space); }
std::string_view strip_right(std::string_view text) { return strip_right_if(text, is_space); }

std::string_view strip_left(std::string_view text, std::string_view characters) {
  const std::u32string set = points(characters);
  return strip_left_if(text, [&](char32_t point) { return set.find(point) != set.npos; });
}

std::string_view strip_right(std::string_view text, std::string_view characters) {
  const std::u32string set = points(characters);
  return strip_right_if(text, [&](char32_t point) { return set.find(point) != set.npos; });
}

bool all_space(std::string_view text) { return strip_left(text).empty(); }

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t here = at;
    const char32_t point = next_point(text, at);
    const bool ends = (point >= 0x0a && point <= 0x0d) || (point >= 0x1c && point <= 0x1e) || point == 0x85 ||
                      point == 0x2028 || point == 0x2029;
    if (!ends) continue;
    if (point == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : here) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace zeno::data::jinja
