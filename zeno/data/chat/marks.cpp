#include "zeno/data/chat/marks.h"

#include <algorithm>

namespace zeno::data {
namespace {

constexpr std::string_view kTextSpace = " \n\r\t";
constexpr size_t kLongestMark = 80;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_word(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || byte >= 0x80;
}

// 0: there is none.
size_t bracketed_size(std::string_view text) {
  const char close = text[0] == '<' ? '>' : text[0] == '[' ? ']' : '\0';
  if (close == '\0') return 0;
  const size_t end = text.substr(0, kLongestMark).find_first_of(std::string{close, text[0], '\n'}, 1);
  return end != text.npos && text[end] == close ? end + 1 : 0;
}

// The first mark of a text, which is not empty; what follows is left.
std::string_view take_mark(std::string_view& text) {
  size_t size = bracketed_size(text);
  while (size < text.size() && is_word(text[size]) && (size == 0 || is_word(text[size - 1]))) ++size;
  size = std::max<size_t>(size, 1);
  const std::string_view mark = text.substr(0, size);
  text.remove_prefix(size);
  return mark;
}

bool same_but_for_numbers(std::string_view a, std::string_view b) {
  const auto without_digits = [](std::string_view text) {
    std::string out(text);
    std::erase_if(out, is_digit);
    return out;
  };
  return a == b || without_digits(a) == without_digits(b);
}

}  // namespace

std::vector<std::string_view> marks_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) out.push_back(take_mark(text));
  return out;
}

size_t common_beginning(std::string_view a, std::string_view b) {
  size_t bytes = 0;
  while (!a.empty() && !b.empty()) {
    const std::string_view mark = take_mark(a);
    if (mark != take_mark(b)) break;
    bytes += mark.size();
  }
  return bytes;
}

size_t common_ending(std::string_view a, std::string_view b) {
  const std::vector<std::string_view> x = marks_of(a), y = marks_of(b);
  size_t bytes = 0;
  for (size_t i = 1; i <= std::min(x.size(), y.size()); ++i) {
    if (!same_but_for_numbers(x[x.size() - i], y[y.size() - i])) break;
    bytes += x[x.size() - i].size();
  }
  return bytes;
}

bool is_blank(std::string_view text) { return text.find_first_not_of(kTextSpace) == text.npos; }

std::string_view trimmed_right(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kTextSpace) + 1);
}

std::string_view trimmed(std::string_view text) {
  return trimmed_right(text.substr(std::min(text.find_first_not_of(kTextSpace), text.size())));
}

}  // namespace zeno::data
