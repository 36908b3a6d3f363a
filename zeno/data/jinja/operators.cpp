#include "zeno/data/jinja/operators.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "zeno/data/jinja/format.h"
#include "zeno/data/jinja/markup.h"

namespace zeno::data::jinja {
namespace {

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void unsupported(Operator op, const Value& a, const Value& b) {
  throw RenderError(
      fmt::format("operator {} between {} and {}", kSigns[size_t(op)], a.type_name(), b.type_name()));
}

[[noreturn]] void overflow() { throw RenderError("integer beyond 64 bits"); }
[[noreturn]] void zero_division() { throw RenderError("division by zero"); }

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) zero_division();
  if (a == INT64_MIN && b == -1) overflow();
  const int64_t quotient = a / b;
  return quotient - ((a % b != 0) && ((a < 0) != (b < 0)));
}

int64_t floor_modulo(int64_t a, int64_t b) {
  if (b == 0) zero_division();
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && ((rest < 0) != (b < 0)) ? rest + b : rest;
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) zero_division();
    return Value::real(std::pow(double(base), double(exponent)));
  }
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::integer(exponent % 2 ? -1 : 1);
  if (exponent > 63) overflow();
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) overflow();
  }
  return Value::integer(result);
}

Value integer_arithmetic(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Operator::add:
      if (__builtin_add_overflow(a, b, &result)) overflow();
      return Value::integer(result);
    case Operator::subtract:
      if (__builtin_sub_overflow(a, b, &result)) overflow();
      return Value::integer(result);
    case Operator::multiply:
      if (__builtin_mul_overflow(a, b, &result)) overflow();
      return Value::integer(result);
    case Operator::divide:
      if (b == 0) zero_division();
      return Value::real(double((long double)(a) / (long double)(b)));
    case Operator::floor_divide:
      return Value::integer(floor_divide(a, b));
    case Operator::modulo:
      return Value::integer(floor_modulo(a, b));
    case Operator::power:
      return integer_power(a, b);
  }
  return {};
}

Value real_arithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return Value::real(a + b);
    case Operator::subtract:
      return Value::real(a - b);
    case Operator::multiply:
      return Value::real(a * b);
    case Operator::divide:
      if (b == 0) zero_division();
      return Value::real(a / b);
    case Operator::floor_divide:
    case Operator::modulo: {
      if (b == 0) zero_division();
      double rest = std::fmod(a, b);
      if (rest != 0 && ((rest < 0) != (b < 0))) rest += b;
      if (op == Operator::modulo) return Value::real(rest == 0 ? std::copysign(0.0, b) : rest);
      return Value::real(std::floor((a - rest) / b + 0.5));
    }
    case Operator::power:
      if (a == 0 && b < 0) zero_division();
      if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
        throw RenderError("a fractional power of a negative number");
      }
      return Value::real(std::pow(a, b));
  }
  return {};
}

Value join(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is(Kind::string)) {
    runtime.budget.bytes(a.traced().memory() + b.traced().memory() + sizeof(Stretch));
    const bool markup = a.is_markup() || b.is_markup();
    if (markup) {
      TracedText text = escaped(runtime, a);
      text.append(escaped(runtime, b));
      return Value::text(std::move(text), markup);
    }
    TracedText text = a.traced().with_room(b.traced().size());
    text.append(b.traced());
    return Value::text(std::move(text));
  }
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  runtime.budget.step(items.size());
  runtime.budget.bytes(items.size() * sizeof(Value));
  return a.is(Kind::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

bool is_sequence(const Value& value) {
  return value.is(Kind::string) || value.is(Kind::list) || value.is(Kind::tuple);
}

Value repeat(Runtime& runtime, const Value& value, int64_t times) {
  const bool text = value.is(Kind::string);
  const uint64_t size = text ? value.traced().memory() : value.items().size() * sizeof(Value);
  uint64_t total = 0;
  if (times < 0 || length(value) == 0) times = 0;
  if (__builtin_mul_overflow(size, uint64_t(times), &total)) total = std::numeric_limits<uint64_t>::max();
  runtime.budget.bytes(total);
  if (text) {
    TracedText out;
    for (int64_t i = 0; i < times; ++i) out.append(value.traced());
    return Value::text(std::move(out), value.is_markup());
  }
  runtime.budget.step(total / sizeof(Value));
  std::vector<Value> items;
  for (int64_t i = 0; i < times; ++i) items.insert(items.end(), value.items().begin(), value.items().end());
  return value.is(Kind::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

}  // namespace

Value apply(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (op == Operator::modulo && a.is(Kind::string)) return percent_format(runtime, a, b);
  require_defined(a);
  require_defined(b);
  if (a.is_integral() && b.is_integral()) return integer_arithmetic(op, a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return real_arithmetic(op, a.as_real(), b.as_real());
  if (op == Operator::add && is_sequence(a) && a.kind() == b.kind()) return join(runtime, a, b);
  if (op == Operator::multiply) {
    if (is_sequence(a) && b.is_integral()) return repeat(runtime, a, b.as_integer());
    if (is_sequence(b) && a.is_integral()) return repeat(runtime, b, a.as_integer());
  }
  unsupported(op, a, b);
}

Value negate(const Value& value) {
  require_defined(value);
  if (value.is(Kind::real)) return Value::real(-value.as_real());
  if (!value.is_integral()) throw RenderError(fmt::format("operator - before a {}", value.type_name()));
  if (value.as_integer() == INT64_MIN) overflow();
  return Value::integer(-value.as_integer());
}

Value plus(const Value& value) {
  require_defined(value);
  if (value.is(Kind::real)) return value;
  if (!value.is_integral()) throw RenderError(fmt::format("operator + before a {}", value.type_name()));
  return Value::integer(value.as_integer());
}

}  // namespace zeno::data::jinja
