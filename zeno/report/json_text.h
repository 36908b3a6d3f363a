// The two pieces of JSON that our writers need: numbers that read back exactly and strings that are always
// valid.
#pragma once

#include <string>
#include <string_view>

namespace zeno::report {

// The shortest text that reads back as the same double; null for NaN and infinities, which JSON does not
// have.
std::string json_number(double value);
// In quotes, escaped; bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

}  // namespace zeno::report
