#include "zeno/data/jinja/loop.h"

#include "zeno/data/jinja/operators.h"

namespace zeno::data::jinja {
namespace {

Value cycle(const Value& loop, const Arguments& arguments) {
  if (!arguments.named.empty()) throw RenderError("loop.cycle: takes no named arguments");
  if (arguments.positional.empty()) throw RenderError("loop.cycle: no items given");
  return arguments.positional[loop.object<Loop>().index0 % arguments.positional.size()];
}

bool changed(Runtime& runtime, Loop& loop, const Arguments& arguments) {
  bool same = loop.changed_called && loop.changed.size() == arguments.positional.size();
  for (size_t i = 0; same && i < loop.changed.size(); ++i) {
    same = equal(runtime, loop.changed[i], arguments.positional[i]);
  }
  loop.changed_called = true;
  loop.changed = arguments.positional;
  return !same;
}

}  // namespace

bool Loop::has(size_t index) {
  while (items.size() <= index && taken < source.size()) {
    const Value& next = source[taken++];
    if (!condition || condition(next)) items.push_back(next);
  }
  return items.size() > index;
}

size_t Loop::length() {
  has(source.size());
  return items.size();
}

void Loop::end() {
  condition = nullptr;
  recurse = nullptr;
  changed.clear();
  taken = source.size();
}

Value Loop::call(Runtime&, const Arguments& arguments) {
  if (!recurse) throw RenderError("loop(…): the for block is not marked 'recursive'");
  const Bound bound("loop", {"iterable"}, 1, arguments);
  return recurse(bound[0], *this);
}

std::optional<Value> loop_attribute(Runtime&, const Value& value, std::string_view name) {
  Loop& loop = value.object<Loop>();
  const auto integer = [](size_t number) { return Value::integer(int64_t(number)); };
  if (name == "index") return integer(loop.index0 + 1);
  if (name == "index0") return integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(!loop.has(loop.index0 + 1));
  if (name == "length") return integer(loop.length());
  if (name == "revindex") return integer(loop.length() - loop.index0);
  if (name == "revindex0") return integer(loop.length() - loop.index0 - 1);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem") {
    return loop.index0 == 0 ? Value::undefined("there is no previous item") : loop.items[loop.index0 - 1];
  }
  if (name == "nextitem") {
    return loop.has(loop.index0 + 1) ? loop.items[loop.index0 + 1]
                                     : Value::undefined("there is no next item");
  }
  if (name == "cycle") {
    return make_method("cycle", value,
                       [value](Runtime&, const Arguments& arguments) { return cycle(value, arguments); });
  }
  if (name == "changed") {
    return make_method("changed", value, [value](Runtime& runtime, const Arguments& arguments) {
      return Value::boolean(changed(runtime, value.object<Loop>(), arguments));
    });
  }
  return std::nullopt;
}

}  // namespace zeno::data::jinja
