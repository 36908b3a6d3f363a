// The `loop` variable of a for block. Items are taken lazily, so that a filter condition sees what the body
// did before.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "zeno/data/jinja/runtime.h"

namespace zeno::data::jinja {

struct Loop : Callable {
  std::vector<Value> source;                                // what the loop runs over
  size_t taken = 0;                                         // of it
  std::vector<Value> items;                                 // those of the taken that passed the condition
  std::function<bool(const Value&)> condition;              // empty: all; gone when the loop ended
  std::function<Value(const Value&, const Loop&)> recurse;  // empty: not a recursive loop
  size_t index0 = 0;
  int64_t depth0 = 0;
  std::vector<Value> changed;  // arguments of the last loop.changed()
  bool changed_called = false;

  bool has(size_t index);
  size_t length();
  // After the last iteration: nothing of the evaluator is left in it, nor what it could hold in a circle.
  void end();
  Value call(Runtime& runtime, const Arguments& arguments) override;
};

std::optional<Value> loop_attribute(Runtime& runtime, const Value& loop, std::string_view name);

}  // namespace zeno::data::jinja
