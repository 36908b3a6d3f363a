// The inside of a quoted string of a template.
#pragma once

#include <string>
#include <string_view>

namespace zeno::data::jinja {

// Resolves Python's escapes. A malformed one throws std::invalid_argument.
std::string unescaped(std::string_view text);

}  // namespace zeno::data::jinja
