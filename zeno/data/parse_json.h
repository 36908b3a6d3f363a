// JSON of data files as values, with errors that say where and what. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace zeno::data {

using Json = nlohmann::ordered_json;  // templates print keys in the order of the file

// Nesting that no record has; deeper values would exhaust the stack of whoever walks through them.
constexpr int kMaxJsonDepth = 200;

// Error(data): not JSON, nested too deeply, or with a number that is too large.
Json parse_json(std::string_view text);

}  // namespace zeno::data
