// JSON of data files as values, with errors that say where and what. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "zeno/base/json_limits.h"

namespace zeno::data {

using Json = nlohmann::ordered_json;  // templates print keys in the order of the file

// More than any record has: the tokens, labels and mask of a context of a million are 3 million values.
constexpr JsonLimits kRecordLimits{.depth = 200, .values = 4'000'000};

// Error(data): not JSON, beyond the limits, or with a number that is too large.
Json parse_json(std::string_view text);

}  // namespace zeno::data
