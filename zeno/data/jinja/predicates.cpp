#include "zeno/data/jinja/predicates.h"

#include <algorithm>
#include <unordered_map>

#include "zeno/data/jinja/filters/filters.h"
#include "zeno/data/jinja/operators.h"
#include "zeno/data/jinja/python_text.h"
#include "zeno/data/jinja/unicode.h"

namespace zeno::data::jinja {
namespace {

template <Kind kind>
bool is_kind(Runtime&, const Value& subject, const Arguments& arguments) {
  const Bound bound("test", {}, 0, arguments);
  return subject.is(kind);
}

template <bool (*check)(const Value&)>
bool passes(Runtime&, const Value& subject, const Arguments& arguments) {
  const Bound bound("test", {}, 0, arguments);
  return check(subject);
}

bool defined(const Value& value) { return !value.is(Kind::undefined); }
bool number(const Value& value) { return value.is_number(); }
bool is_true(const Value& value) { return value.is(Kind::boolean) && value.as_bool(); }
bool is_false(const Value& value) { return value.is(Kind::boolean) && !value.as_bool(); }
bool callable(const Value& value) {
  return value.is(Kind::callable) || value.is(Kind::loop) || value.is(Kind::undefined);
}
bool sequence(const Value& value) {
  return value.is(Kind::string) || value.is(Kind::list) || value.is(Kind::tuple) || value.is(Kind::dict) ||
         value.is(Kind::range) || value.is(Kind::undefined);
}
bool escaped(const Value&) { return false; }

template <Comparison op>
bool compares(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("test", {"other"}, 1, arguments);
  return compare(runtime, op, subject, bound[0]);
}

bool is_zero(Runtime& runtime, const Value& number) { return equal(runtime, number, Value::integer(0)); }

bool divisible_by(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("divisibleby", {"num"}, 1, arguments);
  return is_zero(runtime, apply(runtime, Operator::modulo, subject, bound[0]));
}

template <int rest>
bool parity(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("even/odd", {}, 0, arguments);
  return equal(runtime, apply(runtime, Operator::modulo, subject, Value::integer(2)), Value::integer(rest));
}

bool same_as(Runtime&, const Value& subject, const Arguments& arguments) {
  const Bound bound("sameas", {"other"}, 1, arguments);
  return subject.same_as(bound[0]);
}

template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
bool all_cased(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("upper/lower", {}, 0, arguments);
  const std::u32string list = points(str_of(runtime, subject).str());
  return std::any_of(list.begin(), list.end(), wanted) && std::none_of(list.begin(), list.end(), other);
}

bool is_filter(Runtime&, const Value& subject, const Arguments& arguments) {
  const Bound bound("filter", {}, 0, arguments);
  return subject.is(Kind::string) && find_filter(subject.as_text());
}

bool is_test(Runtime&, const Value& subject, const Arguments& arguments) {
  const Bound bound("test", {}, 0, arguments);
  return subject.is(Kind::string) && find_test(subject.as_text());
}

const std::unordered_map<std::string_view, Test>& all_tests() {
  static const std::unordered_map<std::string_view, Test> tests{
      {"defined", passes<defined>},
      {"undefined", is_kind<Kind::undefined>},
      {"none", is_kind<Kind::none>},
      {"boolean", is_kind<Kind::boolean>},
      {"true", passes<is_true>},
      {"false", passes<is_false>},
      {"integer", is_kind<Kind::integer>},
      {"float", is_kind<Kind::real>},
      {"number", passes<number>},
      {"string", is_kind<Kind::string>},
      {"mapping", is_kind<Kind::dict>},
      {"sequence", passes<sequence>},
      {"iterable", passes<is_iterable>},
      {"callable", passes<callable>},
      {"escaped", passes<escaped>},
      {"upper", all_cased<is_upper, is_lower>},
      {"lower", all_cased<is_lower, is_upper>},
      {"even", parity<0>},
      {"odd", parity<1>},
      {"divisibleby", divisible_by},
      {"sameas", same_as},
      {"filter", is_filter},
      {"test", is_test},
      {"in", compares<Comparison::in>},
      {"eq", compares<Comparison::equal>},
      {"==", compares<Comparison::equal>},
      {"equalto", compares<Comparison::equal>},
      {"ne", compares<Comparison::not_equal>},
      {"!=", compares<Comparison::not_equal>},
      {"gt", compares<Comparison::greater>},
      {">", compares<Comparison::greater>},
      {"greaterthan", compares<Comparison::greater>},
      {"ge", compares<Comparison::greater_equal>},
      {">=", compares<Comparison::greater_equal>},
      {"lt", compares<Comparison::less>},
      {"<", compares<Comparison::less>},
      {"lessthan", compares<Comparison::less>},
      {"le", compares<Comparison::less_equal>},
      {"<=", compares<Comparison::less_equal>},
  };
  return tests;
}

}  // namespace

Test find_test(std::string_view name) {
  const auto at = all_tests().find(name);
  return at == all_tests().end() ? nullptr : at->second;
}

}  // namespace zeno::data::jinja
