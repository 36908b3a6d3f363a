#include "zeno/data/dataset/columns.h"

#include <algorithm>
#include <array>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"

namespace zeno::data {
namespace {

constexpr std::array<std::string_view, 11> kFields{"prompt", "completion", "instruction", "input",
                                                   "output", "system",     "history",     "messages",
                                                   "tools",  "text",       "input_ids"};

std::string known_fields() {
  std::string out;
  for (const std::string_view field : kFields) out += (out.empty() ? "" : ", ") + std::string(field);
  return out;
}

std::string_view without_spaces(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

}  // namespace

Columns parse_columns(std::string_view text) {
  Columns columns;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view pair = text.substr(0, comma);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    const size_t equals = pair.find('=');
    const std::string_view field = without_spaces(pair.substr(0, equals));
    const std::string_view column =
        equals == std::string_view::npos ? std::string_view() : without_spaces(pair.substr(equals + 1));
    require(
        !field.empty() && !column.empty(), ErrorKind::usage,
        "[data] --columns: got '{}', expected FIELD=COLUMN pairs such as prompt=question,completion=answer",
        shortened(pair, 60));
    require(std::ranges::find(kFields, field) != kFields.end(), ErrorKind::usage,
            "[data] --columns {}: unknown field '{}', expected one of {}; the column of the data comes after "
            "the '='",
            shortened(pair, 60), shortened(field, 40), known_fields());
    const auto same = [&](const auto& known) { return known.first == field; };
    require(std::ranges::none_of(columns, same), ErrorKind::usage, "[data] --columns: names field '{}' twice",
            field);
    columns.emplace_back(field, column);
  }
  return columns;
}

}  // namespace zeno::data
