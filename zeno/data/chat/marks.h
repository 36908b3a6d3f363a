// The text that a chat template writes around messages, as a reader divides it: marks such as <|im_end|> or
// [INST], words, and single other characters. Texts are compared by these, so that no comparison ends inside
// of a token. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zeno::data {

std::vector<std::string_view> marks_of(std::string_view text);
// Bytes of the longest beginning that consists of whole marks and is the same in both.
size_t common_beginning(std::string_view a, std::string_view b);
// The same for the end. Numbers count as equal: templates number rounds.
size_t common_ending(std::string_view a, std::string_view b);

bool is_blank(std::string_view text);
std::string_view trimmed(std::string_view text);
std::string_view trimmed_right(std::string_view text);

}  // namespace zeno::data
