// The filters of filters.h that look at each item through an attribute, a filter or a test.
#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "zeno/data/jinja/attributes.h"
#include "zeno/data/jinja/filters/filters.h"
#include "zeno/data/jinja/operators.h"
#include "zeno/data/jinja/predicates.h"
#include "zeno/data/jinja/python_text.h"
#include "zeno/data/jinja/unicode.h"

namespace zeno::data::jinja {
namespace {

Value folded(const Value& value) {
  return value.is(Kind::string) ? Value::text(to_lower(value.as_text())) : value;
}

// The parts of "a.b.0"; an integer or a text without dots is one part; none has no parts.
std::vector<Value> attribute_parts(const Value& attribute) {
  if (attribute.is(Kind::none)) return {};
  if (!attribute.is(Kind::string)) return {attribute};
  std::vector<Value> parts;
  std::string_view rest = attribute.as_text();
  while (true) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string part(rest.substr(0, dot));
    const bool number =
        !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == part.npos;
    parts.push_back(number ? Value::integer(std::stoll(part)) : Value::text(part));
    if (dot == rest.size()) return parts;
    rest.remove_prefix(dot + 1);
  }
}

Value look_up(Runtime& runtime, Value item, const std::vector<Value>& parts,
              const Value* otherwise = nullptr) {
  for (const Value& part : parts) {
    item = subscript(runtime, item, part);
    if (otherwise && item.is(Kind::undefined)) item = *otherwise;
  }
  return item;
}

// ---- map, select, reject ----

Value map_attribute(Runtime& runtime, const std::vector<Value>& items, const Arguments& arguments) {
  Value attribute, otherwise = Value::none();
  for (const auto& [name, value] : arguments.named) {
    if (name == "attribute") {
      attribute = value;
    } else if (name == "default") {
      otherwise = value;
    } else {
      throw RenderError(fmt::format("map: unknown argument '{}'", name));
    }
  }
  const std::vector<Value> parts = attribute_parts(attribute);
  std::vector<Value> out;
  for (const Value& item : items) {
    out.push_back(look_up(runtime, item, parts, otherwise.is(Kind::none) ? nullptr : &otherwise));
  }
  return Value::iterator(std::move(out));
}

Value map(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  if (!subject.truth()) return Value::iterator({});
  const std::vector<Value> items = iterate(runtime, subject);
  const auto is_attribute = [](const auto& named) { return named.first == "attribute"; };
  if (arguments.positional.empty()) {
    if (std::none_of(arguments.named.begin(), arguments.named.end(), is_attribute)) {
      throw RenderError("map: needs a filter or an attribute");
    }
    return map_attribute(runtime, items, arguments);
  }
  const Value& name = arguments.positional[0];
  const Filter filter = name.is(Kind::string) ? find_filter(name.as_text()) : nullptr;
  if (!filter) throw RenderError(fmt::format("map: no filter named '{}'", str_of(runtime, name).str()));
  const Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  std::vector<Value> out;
  for (const Value& item : items) out.push_back(filter(runtime, item, rest));
  return Value::iterator(std::move(out));
}

// `keep`: whether the items that pass stay. With `by_attribute` the first argument names what is tested.
template <bool keep, bool by_attribute>
Value select(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  if (!subject.truth()) return Value::iterator({});
  const std::vector<Value>& given = arguments.positional;
  if (by_attribute && given.empty()) throw RenderError("selectattr/rejectattr: needs an attribute");
  const std::vector<Value> parts = by_attribute ? attribute_parts(given[0]) : std::vector<Value>{};
  Test test = nullptr;
  Arguments rest;
  if (given.size() > by_attribute) {
    const Value& name = given[by_attribute];
    test = name.is(Kind::string) ? find_test(name.as_text()) : nullptr;
    if (!test)
      throw RenderError(fmt::format("select/reject: no test named '{}'", str_of(runtime, name).str()));
    rest = {{given.begin() + 1 + by_attribute, given.end()}, arguments.named};
  }
  std::vector<Value> out;
  for (const Value& item : iterate(runtime, subject)) {
    const Value looked_at = look_up(runtime, item, parts);
    const bool passes = test ? test(runtime, looked_at, rest) : looked_at.truth();
    if (passes == keep) out.push_back(item);
  }
  return Value::iterator(std::move(out));
}

// ---- orders and sums ----

// A stable sort by keys; a comparison that Python refuses throws.
std::vector<Value> sorted_by(Runtime& runtime, std::vector<std::pair<Value, Value>> keyed, bool backwards) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return backwards ? less(runtime, b.first, a.first) : less(runtime, a.first, b.first);
  });
  std::vector<Value> out;
  for (auto& pair : keyed) out.push_back(std::move(pair.second));
  return out;
}

Value sort(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("sort", {"reverse", "case_sensitive", "attribute"}, 0, arguments);
  const bool exact = bound.truth(1, false);
  std::vector<std::vector<Value>> getters;  // one per attribute of "a,b"
  if (bound.has(2) && bound[2].is(Kind::string)) {
    std::string_view rest = bound[2].as_text();
    for (size_t comma; (comma = rest.find(',')) != rest.npos; rest.remove_prefix(comma + 1)) {
      getters.push_back(attribute_parts(Value::text(std::string(rest.substr(0, comma)))));
    }
    getters.push_back(attribute_parts(Value::text(std::string(rest))));
  } else {
    getters.push_back(attribute_parts(bound.get(2, Value::none())));
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : iterate(runtime, subject)) {
    std::vector<Value> key;
    for (const auto& parts : getters) {
      const Value part = look_up(runtime, item, parts);
      key.push_back(exact ? part : folded(part));
    }
    keyed.emplace_back(Value::list(std::move(key)), item);
  }
  return Value::list(sorted_by(runtime, std::move(keyed), bound.truth(0, false)));
}

Value unique(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("unique", {"case_sensitive", "attribute"}, 0, arguments);
  const std::vector<Value> parts = attribute_parts(bound.get(1, Value::none()));
  Pairs seen;
  std::vector<Value> out;
  for (const Value& item : iterate(runtime, subject)) {
    const Value key = look_up(runtime, item, parts);
    const Value compared = bound.truth(0, false) ? key : folded(key);
    require_hashable(compared);
    runtime.budget.step(seen.size());
    if (find(seen, compared)) continue;
    seen.emplace_back(compared, Value::none());
    out.push_back(item);
  }
  return Value::iterator(std::move(out));
}

template <bool largest>
Value extreme(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound(largest ? "max" : "min", {"case_sensitive", "attribute"}, 0, arguments);
  const std::vector<Value> parts = attribute_parts(bound.get(1, Value::none()));
  const std::vector<Value> items = iterate(runtime, subject);
  if (items.empty()) return Value::undefined("min/max: the sequence is empty");
  const auto key_of = [&](const Value& item) {
    const Value key = look_up(runtime, item, parts);
    return bound.truth(0, false) ? key : folded(key);
  };
  size_t best = 0;
  Value best_key = key_of(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    const Value key = key_of(items[i]);
    if (!(largest ? less(runtime, best_key, key) : less(runtime, key, best_key))) continue;
    best = i;
    best_key = key;
  }
  return items[best];
}

Value sum(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("sum", {"attribute", "start"}, 0, arguments);
  const std::vector<Value> parts = attribute_parts(bound.get(0, Value::none()));
  Value total = bound.get(1, Value::integer(0));
  if (total.is(Kind::string)) throw RenderError("sum: texts are joined, not summed");
  for (const Value& item : iterate(runtime, subject)) {
    total = apply(runtime, Operator::add, total, look_up(runtime, item, parts));
  }
  return total;
}

Value join(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("join", {"d", "attribute"}, 0, arguments);
  const TracedText mark = str_of(runtime, bound.get(0, Value::text("")));
  const std::vector<Value> parts = attribute_parts(bound.get(1, Value::none()));
  TracedText out;
  bool first = true;
  for (const Value& item : iterate(runtime, subject)) {
    if (!first) out.append(mark);
    runtime.budget.bytes(mark.memory() + 2 * sizeof(Stretch));
    out.append(str_of(runtime, look_up(runtime, item, parts)));
    first = false;
  }
  return Value::text(std::move(out));
}

Value group_by(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("groupby", {"attribute", "default", "case_sensitive"}, 1, arguments);
  const std::vector<Value> parts = attribute_parts(bound[0]);
  const Value* otherwise = bound.set(1) ? &bound[1] : nullptr;
  const auto key_of = [&](const Value& item) {
    const Value key = look_up(runtime, item, parts, otherwise);
    return bound.truth(2, false) ? key : folded(key);
  };
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : iterate(runtime, subject)) keyed.emplace_back(key_of(item), item);
  std::vector<Value> groups, members;
  const std::vector<Value> sorted = sorted_by(runtime, std::move(keyed), false);
  for (size_t i = 0; i < sorted.size(); ++i) {
    members.push_back(sorted[i]);
    if (i + 1 < sorted.size() && equal(runtime, key_of(sorted[i]), key_of(sorted[i + 1]))) continue;
    const Value name = look_up(runtime, members.front(), parts, otherwise);
    groups.push_back(Value::tuple({name, Value::list(std::move(members))}));
    members.clear();
  }
  return Value::list(std::move(groups));
}

}  // namespace

std::vector<NamedFilter> selection_filters() {
  return {{"map", map},
          {"select", select<true, false>},
          {"reject", select<false, false>},
          {"selectattr", select<true, true>},
          {"rejectattr", select<false, true>},
          {"sort", sort},
          {"unique", unique},
          {"min", extreme<false>},
          {"max", extreme<true>},
          {"sum", sum},
          {"join", join},
          {"groupby", group_by}};
}

}  // namespace zeno::data::jinja
