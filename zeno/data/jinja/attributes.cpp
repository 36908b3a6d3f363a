#include "zeno/data/jinja/attributes.h"

#include <fmt/core.h>

#include <algorithm>

#include "zeno/data/jinja/loop.h"
#include "zeno/data/jinja/operators.h"

namespace zeno::data::jinja {
namespace {

Value view_of(const Value& dict, View::Part part) {
  auto view = std::make_shared<View>();
  view->part = part;
  view->dict = dict;
  view->nesting = dict.nesting() + 1;
  return Value::of(Kind::view, std::move(view));
}

std::optional<View::Part> view_part(std::string_view name) {
  if (name == "items") return View::Part::items;
  if (name == "keys") return View::Part::keys;
  if (name == "values") return View::Part::values;
  return std::nullopt;
}

std::optional<Value> dict_method(const Value& dict, std::string_view name) {
  if (const std::optional<View::Part> part = view_part(name)) {
    return make_method(std::string(name), dict,
                       [dict, part, name = std::string(name)](Runtime&, const Arguments& arguments) {
                         const Bound bound(name, {}, 0, arguments);
                         return view_of(dict, *part);
                       });
  }
  if (name == "get") {
    return make_method("get", dict, [dict](Runtime& runtime, const Arguments& arguments) {
      if (!arguments.named.empty()) throw RenderError("get: takes no named arguments");
      const Bound bound("get", {"key", "default"}, 1, arguments);
      if (bound[0].is(Kind::undefined)) return bound.get(1, Value::none());
      require_hashable(bound[0]);
      runtime.budget.step(dict.pairs().size() / 8);
      const Value* held = find(dict.pairs(), bound[0]);
      return held ? *held : bound.get(1, Value::none());
    });
  }
  if (name == "copy") {
    return make_method("copy", dict, [dict](Runtime&, const Arguments& arguments) {
      const Bound bound("copy", {}, 0, arguments);
      return dict;
    });
  }
  return std::nullopt;
}

Value index_in(Runtime& runtime, const Value& sequence, const Arguments& arguments) {
  const Bound bound("index", {"value", "start", "stop"}, 1, arguments);
  const std::vector<Value>& items = sequence.items();
  const auto clamp = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + int64_t(items.size()) : at, 0, int64_t(items.size()));
  };
  const int64_t stop = clamp(bound.integer(2, int64_t(items.size())));
  for (int64_t i = clamp(bound.integer(1, 0)); i < stop; ++i) {
    if (equal(runtime, items[size_t(i)], bound[0])) return Value::integer(i);
  }
  throw RenderError("index: the value is not in the list");
}

std::optional<Value> sequence_method(const Value& sequence, std::string_view name) {
  if (name == "index") {
    return make_method("index", sequence, [sequence](Runtime& runtime, const Arguments& arguments) {
      return index_in(runtime, sequence, arguments);
    });
  }
  if (name == "count") {
    return make_method("count", sequence, [sequence](Runtime& runtime, const Arguments& arguments) {
      const Bound bound("count", {"value"}, 1, arguments);
      const auto& items = sequence.items();
      return Value::integer(std::count_if(items.begin(), items.end(),
                                          [&](const Value& item) { return equal(runtime, item, bound[0]); }));
    });
  }
  if (name == "copy" && sequence.is(Kind::list)) {
    return make_method("copy", sequence, [sequence](Runtime&, const Arguments& arguments) {
      const Bound bound("copy", {}, 0, arguments);
      return sequence;
    });
  }
  return std::nullopt;
}

// Those that a sandbox for strangers does not hand out.
bool changes_value(const Value& value, std::string_view name) {
  constexpr std::string_view dict_names[] = {"clear", "pop", "popitem", "setdefault", "update"};
  constexpr std::string_view list_names[] = {"append", "clear", "pop",    "reverse",
                                             "insert", "sort",  "extend", "remove"};
  if (value.is(Kind::dict)) return std::count(std::begin(dict_names), std::end(dict_names), name) > 0;
  if (value.is(Kind::list)) return std::count(std::begin(list_names), std::end(list_names), name) > 0;
  return false;
}

std::optional<Value> own_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (changes_value(value, name)) {
    return Value::undefined(
        fmt::format("'{}' would change a {}: a chat template may not", name, value.type_name()));
  }
  switch (value.kind()) {
    case Kind::string:
      return text_method(value, name);
    case Kind::dict:
      return dict_method(value, name);
    case Kind::list:
    case Kind::tuple:
      return sequence_method(value, name);
    case Kind::loop:
      return loop_attribute(runtime, value, name);
    case Kind::name_space: {
      const Value* held = find(value.object<Namespace>().attributes, name);
      return held ? std::optional(*held) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

Value attribute(Runtime& runtime, const Value& value, std::string_view name) {
  require_defined(value);
  if (std::optional<Value> own = own_attribute(runtime, value, name)) return *own;
  if (value.is(Kind::dict)) {
    if (const Value* held = find(value.pairs(), name)) return *held;
  }
  return Value::undefined(fmt::format("a {} has no attribute '{}'", value.type_name(), name));
}

Value subscript(Runtime& runtime, const Value& value, const Value& index) {
  Value held = item_of(runtime, value, index);
  if (!held.is(Kind::undefined) || !index.is(Kind::string)) return held;
  if (value.is(Kind::dict) && find(value.pairs(), index)) return held;
  if (std::optional<Value> own = own_attribute(runtime, value, index.as_text())) return *own;
  return held;
}

}  // namespace zeno::data::jinja
