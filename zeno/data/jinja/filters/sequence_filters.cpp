// The filters of filters.h over lists and dicts.
#include <fmt/core.h>

#include <algorithm>

#include "zeno/data/jinja/attributes.h"
#include "zeno/data/jinja/filters/filters.h"
#include "zeno/data/jinja/operators.h"
#include "zeno/data/jinja/python_text.h"
#include "zeno/data/jinja/unicode.h"

namespace zeno::data::jinja {
namespace {

Value length_of(Runtime&, const Value& subject, const Arguments& arguments) {
  const Bound bound("length", {}, 0, arguments);
  return Value::integer(length(subject));
}

Value default_value(Runtime&, const Value& subject, const Arguments& arguments) {
  const Bound bound("default", {"default_value", "boolean"}, 0, arguments);
  const bool replace = subject.is(Kind::undefined) || (bound.truth(1, false) && !subject.truth());
  return replace ? bound.get(0, Value::text("")) : subject;
}

Value first(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("first", {}, 0, arguments);
  if (subject.is(Kind::iterator)) {
    Iterator& iterator = subject.object<Iterator>();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
    return Value::undefined("first: the sequence is empty");
  }
  const std::vector<Value> items = iterate(runtime, subject);
  return items.empty() ? Value::undefined("first: the sequence is empty") : items.front();
}

void require_reversible(const Value& subject) {
  if (subject.is(Kind::iterator))
    throw RenderError(fmt::format("a {} cannot be reversed", subject.type_name()));
}

Value last(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("last", {}, 0, arguments);
  require_reversible(subject);
  const std::vector<Value> items = iterate(runtime, subject);
  return items.empty() ? Value::undefined("last: the sequence is empty") : items.back();
}

Value to_list(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("list", {}, 0, arguments);
  return Value::list(iterate(runtime, subject));
}

Value reverse(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("reverse", {}, 0, arguments);
  if (subject.is(Kind::string))
    return slice(runtime, subject, Value::none(), Value::none(), Value::integer(-1));
  std::vector<Value> items = iterate(runtime, subject);
  std::reverse(items.begin(), items.end());
  if (subject.is(Kind::iterator)) return Value::list(std::move(items));
  return Value::iterator(std::move(items), "list_reverseiterator");
}

Value items(Runtime&, const Value& subject, const Arguments& arguments) {
  const Bound bound("items", {}, 0, arguments);
  if (subject.is(Kind::undefined)) return Value::iterator({});
  if (!subject.is(Kind::dict))
    throw RenderError(fmt::format("items: got a {}, expected a dict", subject.type_name()));
  std::vector<Value> out;
  for (const auto& [key, value] : subject.pairs()) out.push_back(Value::tuple({key, value}));
  return Value::iterator(std::move(out));
}

Value batch(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("batch", {"linecount", "fill_with"}, 1, arguments);
  const int64_t size = bound.integer(0, 1);
  std::vector<Value> out, line;
  for (Value& item : iterate(runtime, subject)) {
    if (int64_t(line.size()) == size) {
      out.push_back(Value::list(std::move(line)));
      line.clear();
    }
    line.push_back(std::move(item));
  }
  if (!line.empty()) {
    if (bound.set(1) && int64_t(line.size()) < size) {
      runtime.budget.bytes(uint64_t(size) * sizeof(Value));
      line.resize(size_t(size), bound[1]);
    }
    out.push_back(Value::list(std::move(line)));
  }
  return Value::iterator(std::move(out));
}

Value slices(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("slice", {"slices", "fill_with"}, 1, arguments);
  const std::vector<Value> all = iterate(runtime, subject);
  const int64_t count = bound.integer(0, 1);
  if (count == 0) throw RenderError("division by zero");
  std::vector<Value> out;
  runtime.budget.bytes(uint64_t(std::max<int64_t>(count, 0)) * sizeof(Value));
  size_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bool longer = i < int64_t(all.size()) % count;
    const size_t size = all.size() / size_t(count) + longer;
    std::vector<Value> part(all.begin() + std::ptrdiff_t(at), all.begin() + std::ptrdiff_t(at + size));
    at += size;
    if (bound.set(1) && !longer) part.push_back(bound[1]);
    out.push_back(Value::list(std::move(part)));
  }
  return Value::iterator(std::move(out));
}

Value dict_sort(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("dictsort", {"case_sensitive", "by", "reverse"}, 0, arguments);
  require_defined(subject);
  const std::string by = bound.has(1) ? bound.text(1) : "key";
  if (by != "key" && by != "value") throw RenderError("dictsort: sorts by 'key' or 'value'");
  if (!subject.is(Kind::dict))
    throw RenderError(fmt::format("dictsort: got a {}, expected a dict", subject.type_name()));
  const bool exact = bound.truth(0, false), backwards = bound.truth(2, false);
  std::vector<std::pair<Value, Value>> keyed;  // what decides the order, and the pair
  for (const auto& [key, value] : subject.pairs()) {
    Value order = by == "key" ? key : value;
    if (!exact && order.is(Kind::string)) order = Value::text(to_lower(order.as_text()));
    keyed.emplace_back(order, Value::tuple({key, value}));
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return backwards ? less(runtime, b.first, a.first) : less(runtime, a.first, b.first);
  });
  std::vector<Value> out;
  for (auto& pair : keyed) out.push_back(std::move(pair.second));
  return Value::list(std::move(out));
}

Value attribute_filter(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("attr", {"name"}, 1, arguments);
  require_defined(subject);
  // Only the attribute: the item of that name does not count.
  if (subject.is(Kind::dict) && find(subject.pairs(), bound.text(0))) {
    const Value found = attribute(runtime, subject, bound.text(0));
    return found.is(Kind::callable)
               ? found
               : Value::undefined(fmt::format("a dict has no attribute '{}'", bound.text(0)));
  }
  return attribute(runtime, subject, bound.text(0));
}

}  // namespace

std::vector<NamedFilter> sequence_filters() {
  return {{"length", length_of},     {"count", length_of}, {"default", default_value},
          {"d", default_value},      {"first", first},     {"last", last},
          {"list", to_list},         {"reverse", reverse}, {"items", items},
          {"batch", batch},          {"slice", slices},    {"dictsort", dict_sort},
          {"attr", attribute_filter}};
}

}  // namespace zeno::data::jinja
