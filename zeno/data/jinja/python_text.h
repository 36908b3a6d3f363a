// Values as Python writes them: str(), repr() and json.dumps().
#pragma once

#include <optional>
#include <string>

#include "zeno/data/jinja/runtime.h"

namespace zeno::data::jinja {

TracedText str_of(Runtime& runtime, const Value& value);
TracedText repr_of(Runtime& runtime, const Value& value);
// repr() of a float: the shortest digits that read back the same.
std::string real_text(double value);
std::string repr_of_text(std::string_view text);

struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<std::string> indent;  // of one level; without: one line
  std::string item_separator = ", ", key_separator = ": ";
};
TracedText json_of(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace zeno::data::jinja
