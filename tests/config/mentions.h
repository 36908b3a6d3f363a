// Lines that a user reads.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace zeno::config {

inline bool mentions(const std::vector<std::string>& lines, std::string_view what) {
  return std::ranges::any_of(lines,
                             [&](const std::string& line) { return line.find(what) != std::string::npos; });
}

}  // namespace zeno::config
