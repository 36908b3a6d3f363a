// Python's operators over values: comparison, arithmetic, membership, items and slices, iteration. A use that
// Python refuses throws RenderError.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/data/jinja/runtime.h"

namespace zeno::data::jinja {

enum class Operator : uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
enum class Comparison : uint8_t { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

Value apply(Runtime& runtime, Operator op, const Value& a, const Value& b);
Value negate(const Value& value);
Value plus(const Value& value);

bool equal(Runtime& runtime, const Value& a, const Value& b);
bool less(Runtime& runtime, const Value& a, const Value& b);
bool contains(Runtime& runtime, const Value& container, const Value& item);
bool compare(Runtime& runtime, Comparison op, const Value& a, const Value& b);
// Whether two hashable values are one dict key.
bool same_key(const Value& a, const Value& b);

// What a for loop sees; an iterator is used up by it.
std::vector<Value> iterate(Runtime& runtime, const Value& value);
// Whether iterate() would accept it.
bool is_iterable(const Value& value);
int64_t length(const Value& value);

// value[index]: undefined where Python has no such item. Bounds of a slice may be None.
Value item_of(Runtime& runtime, const Value& value, const Value& index);
Value slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop, const Value& step);

// str.replace; a negative count replaces all.
TracedText replaced(Runtime& runtime, const TracedText& text, std::string_view old, const TracedText& fresh,
                    int64_t count);

}  // namespace zeno::data::jinja
