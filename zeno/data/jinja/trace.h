// Which part of a rendering's variables a text comes from: the numbers in Origin::source and their meaning.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "zeno/data/jinja/value.h"

namespace zeno::data::jinja {

// A variable, an element of one that is a list, or the value of a key of an element that is an object.
struct Source {
  std::string variable;
  int64_t element = -1;  // below 0: not in an element
  std::string key;       // empty: not in a value of an object
  bool is_element() const { return element >= 0 && key.empty(); }
};

using JsonList = std::vector<const nlohmann::ordered_json*>;

// A variable of a rendering. Its values stay where they are and must outlive it.
struct Variable {
  std::string name;
  std::variant<const nlohmann::ordered_json*, JsonList> value;  // or the elements of one
};

// The value of a variable whose texts carry their origin; adds the sources it needs. sources[0] is the
// template.
Value traced_variable(Budget& budget, const Variable& variable, std::vector<Source>& sources);

}  // namespace zeno::data::jinja
