// --columns: which column of the data to read each field from. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zeno::data {

// (field, column), in the order given.
using Columns = std::vector<std::pair<std::string, std::string>>;

// "prompt=question,completion=answer"; empty: none. Error(usage): a field that is not known, or named twice.
Columns parse_columns(std::string_view text);

}  // namespace zeno::data
