// The walking half of operators.h: iteration, length, items and slices.
#include <fmt/core.h>

#include <algorithm>

#include "zeno/base/utf8.h"
#include "zeno/data/jinja/operators.h"
#include "zeno/data/jinja/unicode.h"

namespace zeno::data::jinja {
namespace {

TracedText character(const TracedText& text, size_t& at) {
  const size_t begin = at;
  next_point(text.str(), at);
  return text.part(begin, at - begin);
}

std::vector<Value> characters(Runtime& runtime, const TracedText& text) {
  runtime.budget.bytes(text.size() * sizeof(Value));
  std::vector<Value> out;
  for (size_t at = 0; at < text.size();) out.push_back(Value::text(character(text, at)));
  return out;
}

std::vector<Value> keys(const Pairs& pairs) {
  std::vector<Value> out;
  out.reserve(pairs.size());
  for (const auto& pair : pairs) out.push_back(pair.first);
  return out;
}

std::vector<Value> rest(Iterator& iterator) {
  std::vector<Value> out(iterator.items.begin() + std::ptrdiff_t(iterator.next), iterator.items.end());
  iterator.next = iterator.items.size();
  return out;
}

std::optional<int64_t> bound(const Value& value) {
  if (value.is(Kind::none)) return std::nullopt;
  require_defined(value);
  if (!value.is_integral()) {
    throw RenderError(fmt::format("slice: got a {}, expected an integer or none", value.type_name()));
  }
  return value.as_integer();
}

// The indices that a slice of `size` items names.
std::vector<size_t> slice_indices(int64_t size, std::optional<int64_t> start, std::optional<int64_t> stop,
                                  int64_t step) {
  const auto clamp = [&](std::optional<int64_t> given, int64_t otherwise) {
    if (!given) return otherwise;
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? size - 1 : size;
    return std::clamp(*given < 0 ? *given + size : *given, low, high);
  };
  const int64_t first = clamp(start, step < 0 ? size - 1 : 0), last = clamp(stop, step < 0 ? -1 : size);
  // A longer stride than the sequence picks one item; the cut keeps the sum in range.
  step = std::clamp(step, -size - 1, size + 1);
  std::vector<size_t> out;
  for (int64_t i = first; step < 0 ? i > last : i < last; i += step) out.push_back(size_t(i));
  return out;
}

TracedText slice_text(Runtime& runtime, const TracedText& text, std::optional<int64_t> start,
                      std::optional<int64_t> stop, int64_t step) {
  std::vector<size_t> begins;  // of the characters, and the end
  for (size_t at = 0; at < text.size(); next_point(text.str(), at)) begins.push_back(at);
  begins.push_back(text.size());
  const std::vector<size_t> indices = slice_indices(int64_t(begins.size()) - 1, start, stop, step);
  if (indices.empty()) return text.part(0, 0);
  if (step == 1)
    return text.part(begins[indices.front()], begins[indices.back() + 1] - begins[indices.front()]);
  TracedText out;
  for (const size_t i : indices) out.append(text.part(begins[i], begins[i + 1] - begins[i]));
  runtime.budget.bytes(out.memory());
  return out;
}

// value[index] where the index is an integer; null: no such item.
std::optional<Value> element(const Value& value, int64_t index) {
  const int64_t size = length(value);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  if (value.is(Kind::range)) return Value::integer(value.object<Range>().at(index));
  if (!value.is(Kind::string)) return value.items()[size_t(index)];
  const TracedText& text = value.traced();
  size_t at = 0;
  for (int64_t i = 0; i < index; ++i) next_point(text.str(), at);
  return Value::text(character(text, at), value.is_markup());
}

}  // namespace

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::range:
    case Kind::view:
    case Kind::iterator:
      return true;
    default:
      return false;
  }
}

std::vector<Value> iterate(Runtime& runtime, const Value& value) {
  if (!is_iterable(value)) throw RenderError(fmt::format("a {} cannot be iterated", value.type_name()));
  if (!value.is(Kind::iterator)) {
    runtime.budget.step(uint64_t(length(value)));
    runtime.budget.bytes(uint64_t(length(value)) * sizeof(Value));
  }
  switch (value.kind()) {
    case Kind::string:
      return characters(runtime, value.traced());
    case Kind::list:
    case Kind::tuple:
      return value.items();
    case Kind::dict:
      return keys(value.pairs());
    case Kind::view:
      return value.object<View>().items();
    case Kind::iterator:
      return rest(value.object<Iterator>());
    case Kind::range: {
      const Range& range = value.object<Range>();
      std::vector<Value> out;
      for (int64_t i = 0; i < range.size(); ++i) out.push_back(Value::integer(range.at(i)));
      return out;
    }
    default:
      return {};
  }
}

int64_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      return int64_t(point_count(value.as_text()));
    case Kind::list:
    case Kind::tuple:
      return int64_t(value.items().size());
    case Kind::dict:
      return int64_t(value.pairs().size());
    case Kind::range:
      return value.object<Range>().size();
    case Kind::view:
      return int64_t(value.object<View>().dict.pairs().size());
    default:
      throw RenderError(fmt::format("a {} has no length", value.type_name()));
  }
}

Value item_of(Runtime& runtime, const Value& value, const Value& index) {
  require_defined(value);
  runtime.budget.step();
  switch (value.kind()) {
    case Kind::dict: {
      if (index.is(Kind::undefined)) break;
      runtime.budget.step(value.pairs().size() / 8);
      if (const Value* held = find(value.pairs(), index)) return *held;
      break;
    }
    case Kind::string:
      runtime.budget.step(value.as_text().size() / 16);
      [[fallthrough]];
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
      if (!index.is_integral()) break;
      if (std::optional<Value> held = element(value, index.as_integer())) return *held;
      break;
    default:
      break;
  }
  if (index.is(Kind::string)) {
    return Value::undefined(fmt::format("a {} has no '{}'", value.type_name(), index.as_text()));
  }
  if (index.is_integral()) {
    return Value::undefined(fmt::format("a {} has no element {}", value.type_name(), index.as_integer()));
  }
  return Value::undefined(fmt::format("a {} has no such element", value.type_name()));
}

Value slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop, const Value& step) {
  require_defined(value);
  const std::optional<int64_t> first = bound(start), last = bound(stop), stride = bound(step);
  if (stride == 0) throw RenderError("slice: the step is 0");
  const bool sliceable =
      value.is(Kind::string) || value.is(Kind::list) || value.is(Kind::tuple) || value.is(Kind::range);
  if (!sliceable) return Value::undefined(fmt::format("a {} has no slices", value.type_name()));
  const int64_t size = length(value);
  runtime.budget.step(uint64_t(size));
  runtime.budget.bytes(uint64_t(size) * 8);
  if (value.is(Kind::string)) {
    return Value::text(slice_text(runtime, value.traced(), first, last, stride.value_or(1)),
                       value.is_markup());
  }
  const std::vector<size_t> indices = slice_indices(size, first, last, stride.value_or(1));
  runtime.budget.bytes(indices.size() * sizeof(Value));
  const std::vector<Value> all = iterate(runtime, value);
  std::vector<Value> out;
  out.reserve(indices.size());
  for (const size_t i : indices) out.push_back(all[i]);
  return value.is(Kind::tuple) ? Value::tuple(std::move(out)) : Value::list(std::move(out));
}

TracedText replaced(Runtime& runtime, const TracedText& whole, std::string_view old, const TracedText& fresh,
                    int64_t count) {
  const std::string& text = whole.str();
  runtime.budget.bytes(whole.memory());
  TracedText out;
  size_t at = 0;
  while (count != 0) {
    const size_t hit = text.find(old, at);
    if (hit == text.npos) break;
    runtime.budget.bytes(fresh.memory() + 2 * sizeof(Stretch));
    runtime.budget.step();
    if (hit > at) out.append(whole.part(at, hit - at));
    out.append(fresh);
    at = hit + old.size();
    if (count > 0) --count;
    if (!old.empty()) continue;
    // "" stands before every character and at the end.
    if (at == text.size()) return out;
    const size_t begin = at;
    next_point(text, at);
    out.append(whole.part(begin, at - begin));
  }
  if (at == 0) return whole;
  if (at < text.size()) out.append(whole.part(at));
  return out.empty() ? whole.part(0, 0) : out;
}

}  // namespace zeno::data::jinja
