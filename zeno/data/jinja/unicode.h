// UTF-8 text as Python sees it: a sequence of code points, with Python's idea of white space and of letters.
// All texts given here are valid UTF-8. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace zeno::data::jinja {

// The code point at `at`, which moves behind it.
char32_t next_point(std::string_view text, size_t& at);
std::u32string points(std::string_view text);
std::string from_points(std::u32string_view points);
size_t point_count(std::string_view text);

bool is_space(char32_t point);  // str.isspace
bool is_alpha(char32_t point);  // str.isalpha
bool is_digit(char32_t point);  // str.isdigit
bool is_upper(char32_t point);
bool is_lower(char32_t point);
bool is_printable(char32_t point);  // what repr() shows as it is

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);  // str.title
std::string to_capitalized(std::string_view text);
std::string to_swapped(std::string_view text);  // str.swapcase

// str.lstrip and str.rstrip; without characters: white space.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
std::string_view strip_left(std::string_view text, std::string_view characters);
std::string_view strip_right(std::string_view text, std::string_view characters);
bool all_space(std::string_view text);  // true for ""
// str.splitlines; the lines are parts of `text`.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

}  // namespace zeno::data::jinja
