// Attributes and methods of values as the immutable sandbox of Jinja gives them: a method that would change a
// list or a dict is undefined.
#pragma once

#include <optional>
#include <string_view>

#include "zeno/data/jinja/runtime.h"

namespace zeno::data::jinja {

// value.name: the method first, then the item of that name, else undefined.
Value attribute(Runtime& runtime, const Value& value, std::string_view name);
// value[index]: the item first, then the method of that name, else undefined.
Value subscript(Runtime& runtime, const Value& value, const Value& index);

// A method of a text, bound to it.
std::optional<Value> text_method(const Value& text, std::string_view name);

}  // namespace zeno::data::jinja
