// JSON as Python's json module writes and reads it: with the numbers NaN, Infinity and -Infinity, which JSON
// does not have. Pure functions on text.
#pragma once

#include <string>

namespace zeno {

// Valid JSON if the rest of `text` is: those three become strings that no other text is likely to hold.
std::string quote_special_numbers(std::string text);
// The inverse, for text that is written again or shown.
std::string unquote_special_numbers(const std::string& text);

}  // namespace zeno
