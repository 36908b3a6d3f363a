// The comparing half of operators.h.
#include <fmt/core.h>

#include <algorithm>

#include "zeno/data/jinja/operators.h"

namespace zeno::data::jinja {
namespace {

// -1, 0, 1, or 2 where a NaN is involved. long double holds every 64-bit integer and every double exactly.
int order(const Value& a, const Value& b) {
  const auto wide = [](const Value& value) {
    return value.is(Kind::real) ? (long double)(value.as_real()) : (long double)(value.as_integer());
  };
  const long double x = wide(a), y = wide(b);
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

bool equal_items(Runtime& runtime, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equal(runtime, a[i], b[i])) return false;
  }
  return true;
}

bool equal_pairs(Runtime& runtime, const Pairs& a, const Pairs& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a) {
    runtime.budget.step(b.size());
    const Value* other = find(b, key);
    if (!other || !equal(runtime, value, *other)) return false;
  }
  return true;
}

bool equal_views(Runtime& runtime, const View& a, const View& b) {
  if (a.part != b.part || a.part == View::Part::values) return false;
  if (a.part == View::Part::items) return equal_pairs(runtime, a.dict.pairs(), b.dict.pairs());
  const Pairs &x = a.dict.pairs(), &y = b.dict.pairs();
  runtime.budget.step(x.size() * (y.size() + 1));
  return x.size() == y.size() &&
         std::all_of(x.begin(), x.end(), [&](const auto& pair) { return find(y, pair.first); });
}

[[noreturn]] void not_comparable(const Value& a, const Value& b) {
  throw RenderError(fmt::format("cannot order {} and {}", a.type_name(), b.type_name()));
}

// For <=, >=: Python's lists compare the first items that differ.
bool ordered(Runtime& runtime, Comparison op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const int o = order(a, b);
    switch (op) {
      case Comparison::less:
        return o == -1;
      case Comparison::less_equal:
        return o == -1 || o == 0;
      case Comparison::greater:
        return o == 1;
      default:
        return o == 1 || o == 0;
    }
  }
  const bool strict = op == Comparison::less || op == Comparison::greater;
  const bool descending = op == Comparison::greater || op == Comparison::greater_equal;
  const Value &x = descending ? b : a, &y = descending ? a : b;
  return strict ? less(runtime, x, y) : less(runtime, x, y) || equal(runtime, x, y);
}

}  // namespace

bool same_key(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return order(a, b) == 0;
  return a.same_as(b);
}

bool equal(Runtime& runtime, const Value& a, const Value& b) {
  const Budget::Level level(runtime.budget);
  runtime.budget.step();
  if (a.is_number() && b.is_number()) return order(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::list:
    case Kind::tuple:
      return a.same_as(b) || equal_items(runtime, a.items(), b.items());
    case Kind::dict:
      return a.same_as(b) || equal_pairs(runtime, a.pairs(), b.pairs());
    case Kind::range: {
      const Range &x = a.object<Range>(), &y = b.object<Range>();
      if (x.size() != y.size()) return false;
      return x.size() == 0 || (x.start == y.start && (x.size() == 1 || x.step == y.step));
    }
    case Kind::view:
      return a.same_as(b) || equal_views(runtime, a.object<View>(), b.object<View>());
    default:
      return a.same_as(b);
  }
}

bool less(Runtime& runtime, const Value& a, const Value& b) {
  const Budget::Level level(runtime.budget);
  runtime.budget.step();
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) return order(a, b) == -1;
  if (a.kind() != b.kind()) not_comparable(a, b);
  // UTF-8 keeps the order of code points.
  if (a.is(Kind::string)) return a.as_text() < b.as_text();
  if (!a.is(Kind::list) && !a.is(Kind::tuple)) not_comparable(a, b);
  const std::vector<Value>&x = a.items(), &y = b.items();
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!equal(runtime, x[i], y[i])) return less(runtime, x[i], y[i]);
  }
  return x.size() < y.size();
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::undefined:
      return false;
    case Kind::string:
      if (!item.is(Kind::string)) {
        throw RenderError(fmt::format("'in' of a text: got a {}, expected a text", item.type_name()));
      }
      runtime.budget.step(container.as_text().size() / 16);
      return container.as_text().find(item.as_text()) != std::string::npos;
    case Kind::dict:
      if (item.is(Kind::undefined)) return false;
      require_hashable(item);
      runtime.budget.step(container.pairs().size());
      return find(container.pairs(), item) != nullptr;
    case Kind::iterator: {  // looks only as far as needed, and uses up what it saw
      Iterator& iterator = container.object<Iterator>();
      while (iterator.next < iterator.items.size()) {
        const Value& candidate = iterator.items[iterator.next++];
        if (equal(runtime, candidate, item)) return true;
      }
      return false;
    }
    default:
      for (const Value& candidate : iterate(runtime, container)) {
        if (equal(runtime, candidate, item)) return true;
      }
      return false;
  }
}

bool compare(Runtime& runtime, Comparison op, const Value& a, const Value& b) {
  switch (op) {
    case Comparison::equal:
      return equal(runtime, a, b);
    case Comparison::not_equal:
      return !equal(runtime, a, b);
    case Comparison::in:
      return contains(runtime, b, a);
    case Comparison::not_in:
      return !contains(runtime, b, a);
    default:
      return ordered(runtime, op, a, b);
  }
}

}  // namespace zeno::data::jinja
