// A value of a Parquet column as JSON. Pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "zeno/data/parquet/decoder.h"

namespace zeno::data::parquet {

using Json = nlohmann::ordered_json;

// Numbers and booleans are themselves. Text is text; bytes that are not UTF-8 are a binary value, which is
// refused where text is expected. Dates, times and timestamps are text as in ISO 8601 ("Z" marks instants). A
// decimal of up to 15 digits is a number, a longer one text, since a number would lose digits.
Json json_value(const Value& value, const ValueType& type);

}  // namespace zeno::data::parquet
