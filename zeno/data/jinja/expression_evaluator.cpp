// The expression half of the evaluator.
#include <fmt/core.h>

#include "zeno/data/jinja/attributes.h"
#include "zeno/data/jinja/evaluator.h"
#include "zeno/data/jinja/operators.h"
#include "zeno/data/jinja/python_text.h"

namespace zeno::data::jinja {

Value Evaluator::evaluate(const Expression& node) {
  const Budget::Level level(runtime_.budget);
  runtime_.budget.step();
  runtime_.line = node.line;
  switch (node.kind) {
    case Expression::Kind::none:
      return Value::none();
    case Expression::Kind::boolean:
      return Value::boolean(node.integer != 0);
    case Expression::Kind::integer:
      return Value::integer(node.integer);
    case Expression::Kind::real:
      return Value::real(node.real);
    case Expression::Kind::string:
      return Value::text(TracedText(node.text, {.frame = frame_}));
    case Expression::Kind::name:
      return name(node);
    case Expression::Kind::list:
      return Value::list(evaluate_all(node.parts));
    case Expression::Kind::tuple:
      return Value::tuple(evaluate_all(node.parts));
    case Expression::Kind::dict:
      return dict(node);
    case Expression::Kind::negate:
      return negate(evaluate(*node.parts[0]));
    case Expression::Kind::plus:
      return plus(evaluate(*node.parts[0]));
    case Expression::Kind::binary: {
      const Value left = evaluate(*node.parts[0]);
      const Value right = evaluate(*node.parts[1]);
      runtime_.line = node.line;
      return apply(runtime_, node.op, left, right);
    }
    case Expression::Kind::concat:
      return concat(node);
    case Expression::Kind::compare:
      return compare_chain(node);
    case Expression::Kind::all_of:
      return first_deciding(node, false);
    case Expression::Kind::any_of:
      return first_deciding(node, true);
    case Expression::Kind::negation:
      return Value::boolean(!evaluate(*node.parts[0]).truth());
    case Expression::Kind::choice:
      if (evaluate(*node.parts[1]).truth()) return evaluate(*node.parts[0]);
      return node.parts[2] ? evaluate(*node.parts[2])
                           : Value::undefined("the condition is false and there is no else");
    default:
      return look_up(node);
  }
}

// Attributes, items, calls, filters and tests: what is asked of a value.
Value Evaluator::look_up(const Expression& node) {
  switch (node.kind) {
    case Expression::Kind::attribute:
      return attribute(runtime_, evaluate(*node.parts[0]), node.text);
    case Expression::Kind::item: {
      const Value from = evaluate(*node.parts[0]);
      return subscript(runtime_, from, evaluate(*node.parts[1]));
    }
    case Expression::Kind::slice: {
      const Value from = evaluate(*node.parts[0]);
      const Value start = evaluate_optional(node.parts[1]), stop = evaluate_optional(node.parts[2]);
      return slice(runtime_, from, start, stop, evaluate_optional(node.parts[3]));
    }
    case Expression::Kind::call: {
      const Value callee = evaluate(*node.parts[0]);
      const Arguments given = arguments(node.arguments);
      runtime_.line = node.line;
      return call(runtime_, callee, given);
    }
    case Expression::Kind::test: {
      const Value subject = evaluate(*node.parts[0]);
      return Value::boolean(node.test(runtime_, subject, arguments(node.arguments)));
    }
    default:
      return filter(node, nullptr);
  }
}

Value Evaluator::evaluate_optional(const ExpressionPtr& node) {
  return node ? evaluate(*node) : Value::none();
}

Value Evaluator::name(const Expression& node) const {
  if (const Value* value = scope_->find(node.text)) return *value;
  if (node.text == "strftime_now") {
    return Value::undefined(
        "strftime_now: the template asks for the date, and none was given; give --chat-date YYYY-MM-DD");
  }
  return Value::undefined(fmt::format("'{}' is undefined", node.text));
}

Value Evaluator::dict(const Expression& node) {
  Pairs pairs;
  for (size_t i = 0; i < node.parts.size(); i += 2) {
    const Value key = evaluate(*node.parts[i]);
    require_hashable(key);
    jinja::assign(pairs, key, evaluate(*node.parts[i + 1]));
  }
  return Value::dict(std::move(pairs));
}

Value Evaluator::compare_chain(const Expression& node) {
  Value left = evaluate(*node.parts[0]);
  for (size_t i = 0; i < node.comparisons.size(); ++i) {
    Value right = evaluate(*node.parts[i + 1]);
    runtime_.line = node.line;
    if (!compare(runtime_, node.comparisons[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

// and, or: the first operand whose truth is `until`, else the last one.
Value Evaluator::first_deciding(const Expression& node, bool until) {
  for (size_t i = 0; i + 1 < node.parts.size(); ++i) {
    Value value = evaluate(*node.parts[i]);
    if (value.truth() == until) return value;
  }
  return evaluate(*node.parts.back());
}

Value Evaluator::filter(const Expression& node, const Value* block) {
  const Budget::Level level(runtime_.budget);
  Value subject;
  if (node.parts.empty()) {
    subject = *block;
  } else {
    subject = block ? filter(*node.parts[0], block) : evaluate(*node.parts[0]);
  }
  const Arguments given = arguments(node.arguments);
  runtime_.line = node.line;
  return node.filter(runtime_, subject, given);
}

Value Evaluator::concat(const Expression& node) {
  TracedText text;
  for (const ExpressionPtr& part : node.parts) text.append(str_of(runtime_, evaluate(*part)));
  return Value::text(std::move(text));
}

std::vector<Value> Evaluator::evaluate_all(const std::vector<ExpressionPtr>& nodes) {
  std::vector<Value> out;
  out.reserve(nodes.size());
  for (const ExpressionPtr& node : nodes) out.push_back(evaluate(*node));
  return out;
}

Arguments Evaluator::arguments(const CallArguments& given) {
  Arguments out;
  out.positional = evaluate_all(given.positional);
  for (const auto& [name, node] : given.named) out.named.emplace_back(name, evaluate(*node));
  if (given.more_positional) {
    const std::vector<Value> more = iterate(runtime_, evaluate(*given.more_positional));
    out.positional.insert(out.positional.end(), more.begin(), more.end());
  }
  if (given.more_named) {
    const Value more = evaluate(*given.more_named);
    if (!more.is(Kind::dict))
      throw RenderError(fmt::format("**: got a {}, expected a dict", more.type_name()));
    for (const auto& [name, value] : more.pairs()) {
      if (!name.is(Kind::string)) throw RenderError("**: the keys must be texts");
      out.named.emplace_back(name.as_text(), value);
    }
  }
  return out;
}

}  // namespace zeno::data::jinja
