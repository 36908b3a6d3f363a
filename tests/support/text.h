// What tests ask about texts: output of programs, pages, messages.
#pragma once

#include <string_view>

namespace zeno::test {

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace zeno::test
