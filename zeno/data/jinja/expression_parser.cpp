// The expression half of the parser, loosest operator first.
#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "zeno/data/jinja/parser.h"

namespace zeno::data::jinja {
namespace {

constexpr int kMaxExpressionDepth = 200;

std::optional<Comparison> comparison_sign(const Token& token) {
  if (token.kind != Token::Kind::sign) return std::nullopt;
  if (token.text == "==") return Comparison::equal;
  if (token.text == "!=") return Comparison::not_equal;
  if (token.text == "<") return Comparison::less;
  if (token.text == "<=") return Comparison::less_equal;
  if (token.text == ">") return Comparison::greater;
  if (token.text == ">=") return Comparison::greater_equal;
  return std::nullopt;
}

std::optional<Operator> product_sign(const Token& token) {
  if (token.is_sign("*")) return Operator::multiply;
  if (token.is_sign("/")) return Operator::divide;
  if (token.is_sign("//")) return Operator::floor_divide;
  if (token.is_sign("%")) return Operator::modulo;
  return std::nullopt;
}

}  // namespace

ExpressionPtr Parser::make(Expression::Kind kind, int line) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  return node;
}

void Parser::deepen(Expression& node, const ExpressionPtr& part) const {
  if (part) node.depth = std::max(node.depth, part->depth + 1);
  if (node.depth > kMaxExpressionDepth)
    fail(fmt::format("an expression of more than {} levels", kMaxExpressionDepth));
}

void Parser::add_part(Expression& node, ExpressionPtr part) const {
  deepen(node, part);
  node.parts.push_back(std::move(part));
}

void Parser::count_arguments(Expression& node) const {
  for (const auto& value : node.arguments.positional) deepen(node, value);
  for (const auto& named : node.arguments.named) deepen(node, named.second);
  deepen(node, node.arguments.more_positional);
  deepen(node, node.arguments.more_named);
}

ExpressionPtr Parser::expression(bool with_choice) {
  const Level level(*this);
  return with_choice ? choice() : any_of();
}

// One expression, or several with commas between them. `end_name` may follow the last comma.
ExpressionPtr Parser::tuple(bool with_choice, std::string_view end_name, bool in_parentheses) {
  const int line = current().line;
  ExpressionPtr node = make(Expression::Kind::tuple, line);
  bool several = false;
  while (true) {
    const bool ends = current().kind == Token::Kind::print_end || current().kind == Token::Kind::block_end ||
                      current().is_sign(")") || (!end_name.empty() && current().is_name(end_name));
    if (ends) break;
    add_part(*node, expression(with_choice));
    if (!skip_sign(",")) break;
    several = true;
  }
  if (several) return node;
  if (!node->parts.empty()) return std::move(node->parts[0]);
  if (!in_parentheses) fail(fmt::format("expected an expression, got {}", current().describe()));
  return node;
}

ExpressionPtr Parser::choice() {
  ExpressionPtr node = any_of();
  while (current().is_name("if")) {
    const int line = take().line;
    ExpressionPtr condition = any_of();
    ExpressionPtr otherwise;
    if (skip_name("else")) {
      const Level level(*this);
      otherwise = choice();
    }
    node = join(Expression::Kind::choice, line, std::move(node), std::move(condition), std::move(otherwise));
  }
  return node;
}

ExpressionPtr Parser::any_of() {
  ExpressionPtr node = all_of();
  if (!current().is_name("or")) return node;
  node = join(Expression::Kind::any_of, current().line, std::move(node));
  while (skip_name("or")) add_part(*node, all_of());
  return node;
}

ExpressionPtr Parser::all_of() {
  ExpressionPtr node = negation();
  if (!current().is_name("and")) return node;
  node = join(Expression::Kind::all_of, current().line, std::move(node));
  while (skip_name("and")) add_part(*node, negation());
  return node;
}

ExpressionPtr Parser::negation() {
  if (!current().is_name("not")) return comparison();
  const Level level(*this);
  const int line = take().line;
  return join(Expression::Kind::negation, line, negation());
}

ExpressionPtr Parser::comparison() {
  ExpressionPtr first = sum(), node;
  while (true) {
    std::optional<Comparison> op = comparison_sign(current());
    if (current().is_name("in")) op = Comparison::in;
    if (current().is_name("not") && ahead().is_name("in")) {
      take();
      op = Comparison::not_in;
    }
    if (!op) return node ? std::move(node) : std::move(first);
    const int line = take().line;
    if (!node) node = join(Expression::Kind::compare, line, std::move(first));
    node->comparisons.push_back(*op);
    add_part(*node, sum());
  }
}

ExpressionPtr Parser::sum() {
  ExpressionPtr node = concatenation();
  while (current().is_sign("+") || current().is_sign("-")) {
    const Token sign = take();
    node = join(Expression::Kind::binary, sign.line, std::move(node), concatenation());
    node->op = sign.text == "+" ? Operator::add : Operator::subtract;
  }
  return node;
}

ExpressionPtr Parser::concatenation() {
  ExpressionPtr node = product();
  if (!current().is_sign("~")) return node;
  node = join(Expression::Kind::concat, current().line, std::move(node));
  while (skip_sign("~")) add_part(*node, product());
  return node;
}

ExpressionPtr Parser::product() {
  ExpressionPtr node = power();
  while (const std::optional<Operator> op = product_sign(current())) {
    const int line = take().line;
    node = join(Expression::Kind::binary, line, std::move(node), power());
    node->op = *op;
  }
  return node;
}

ExpressionPtr Parser::power() {
  ExpressionPtr node = unary(true);
  while (current().is_sign("**")) {
    const int line = take().line;
    node = join(Expression::Kind::binary, line, std::move(node), unary(true));
    node->op = Operator::power;
  }
  return node;
}

ExpressionPtr Parser::unary(bool with_filters) {
  const Level level(*this);
  ExpressionPtr node;
  if (current().is_sign("-") || current().is_sign("+")) {
    const Token sign = take();
    node =
        join(sign.text == "-" ? Expression::Kind::negate : Expression::Kind::plus, sign.line, unary(false));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filtered(std::move(node)) : std::move(node);
}

ExpressionPtr Parser::name_or_constant() {
  const Token token = take();
  const std::string& text = token.text;
  if (text == "none" || text == "None") return make(Expression::Kind::none, token.line);
  const bool yes = text == "true" || text == "True";
  if (yes || text == "false" || text == "False") {
    ExpressionPtr node = make(Expression::Kind::boolean, token.line);
    node->integer = yes;
    return node;
  }
  if (text == "varargs" || text == "kwargs" || text == "caller") used_names_.push_back(text);
  ExpressionPtr node = make(Expression::Kind::name, token.line);
  node->text = text;
  return node;
}

ExpressionPtr Parser::primary() {
  switch (current().kind) {
    case Token::Kind::name:
      return name_or_constant();
    case Token::Kind::string: {
      ExpressionPtr node = make(Expression::Kind::string, current().line);
      while (current().kind == Token::Kind::string) node->text += take().text;
      return node;
    }
    case Token::Kind::integer: {
      ExpressionPtr node = make(Expression::Kind::integer, current().line);
      node->integer = take().integer;
      return node;
    }
    case Token::Kind::real: {
      ExpressionPtr node = make(Expression::Kind::real, current().line);
      node->real = take().real;
      return node;
    }
    default:
      break;
  }
  if (skip_sign("(")) {
    ExpressionPtr node = tuple(true, "", true);
    expect_sign(")");
    return node;
  }
  if (current().is_sign("[")) return list();
  if (current().is_sign("{")) return dict();
  fail(fmt::format("expected an expression, got {}", current().describe()));
}

ExpressionPtr Parser::list() {
  ExpressionPtr node = make(Expression::Kind::list, take().line);
  while (!current().is_sign("]")) {
    if (!node->parts.empty()) expect_sign(",");
    if (current().is_sign("]")) break;
    add_part(*node, expression());
  }
  expect_sign("]");
  return node;
}

ExpressionPtr Parser::dict() {
  ExpressionPtr node = make(Expression::Kind::dict, take().line);
  while (!current().is_sign("}")) {
    if (!node->parts.empty()) expect_sign(",");
    if (current().is_sign("}")) break;
    add_part(*node, expression());
    expect_sign(":");
    add_part(*node, expression());
  }
  expect_sign("}");
  return node;
}

ExpressionPtr Parser::postfix(ExpressionPtr node) {
  while (true) {
    if (current().is_sign(".") || current().is_sign("[")) {
      node = subscript(std::move(node));
    } else if (current().is_sign("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::filtered(ExpressionPtr node) {
  while (true) {
    if (skip_sign("|")) {
      node = filter(std::move(node));
    } else if (current().is_name("is")) {
      node = test(std::move(node));
    } else if (current().is_sign("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::subscript(ExpressionPtr node) {
  const Token sign = take();
  if (sign.text == "[") return subscript_index(std::move(node));
  const Token name = take();
  if (name.kind == Token::Kind::name) {
    node = join(Expression::Kind::attribute, sign.line, std::move(node));
    node->text = name.text;
    return node;
  }
  if (name.kind != Token::Kind::integer) fail("expected a name or a number after '.'");
  ExpressionPtr index = make(Expression::Kind::integer, name.line);
  index->integer = name.integer;
  return join(Expression::Kind::item, sign.line, std::move(node), std::move(index));
}

ExpressionPtr Parser::subscript_index(ExpressionPtr node) {
  const int line = current().line;
  ExpressionPtr parts[3];
  bool is_slice = false;
  for (int i = 0; i < 3; ++i) {
    if (!current().is_sign(":") && !current().is_sign("]")) parts[i] = expression();
    if (i == 2 || !skip_sign(":")) break;
    is_slice = true;
  }
  if (!is_slice && !parts[0]) fail("expected an index between [ and ]");
  expect_sign("]");
  if (!is_slice) return join(Expression::Kind::item, line, std::move(node), std::move(parts[0]));
  return join(Expression::Kind::slice, line, std::move(node), std::move(parts[0]), std::move(parts[1]),
              std::move(parts[2]));
}

ExpressionPtr Parser::call(ExpressionPtr node) {
  node = join(Expression::Kind::call, current().line, std::move(node));
  node->arguments = call_arguments();
  count_arguments(*node);
  return node;
}

CallArguments Parser::call_arguments() {
  CallArguments out;
  expect_sign("(");
  for (bool first = true; !current().is_sign(")"); first = false) {
    if (!first) {
      expect_sign(",");
      if (current().is_sign(")")) break;
    }
    call_argument(out);
  }
  expect_sign(")");
  return out;
}

void Parser::call_argument(CallArguments& out) {
  const auto in_order = [&](bool ok) {
    if (!ok) fail("arguments in the wrong order: positional, named, *list, **dict");
  };
  if (skip_sign("*")) {
    in_order(!out.more_positional && !out.more_named);
    out.more_positional = expression();
  } else if (skip_sign("**")) {
    in_order(!out.more_named);
    out.more_named = expression();
  } else if (current().kind == Token::Kind::name && ahead().is_sign("=")) {
    in_order(!out.more_named);
    std::string name = take().text;
    take();
    out.named.emplace_back(std::move(name), expression());
  } else {
    in_order(!out.more_positional && !out.more_named && out.named.empty());
    out.positional.push_back(expression());
  }
}

// The `|` is behind us. A null node: the filter of a block.
ExpressionPtr Parser::filter(ExpressionPtr node) {
  const int line = current().line;
  ExpressionPtr out = make(Expression::Kind::filter, line);
  out->text = expect_any_name();
  while (skip_sign(".")) out->text.append(".").append(expect_any_name());
  out->filter = find_filter(out->text);
  if (!out->filter) syntax_error(where_, line, fmt::format("no filter named '{}'", out->text));
  if (current().is_sign("(")) out->arguments = call_arguments();
  count_arguments(*out);
  if (node) add_part(*out, std::move(node));
  return out;
}

ExpressionPtr Parser::test(ExpressionPtr node) {
  const int line = take().line;
  const bool negated = skip_name("not");
  ExpressionPtr out = join(Expression::Kind::test, line, std::move(node));
  out->text = expect_any_name();
  while (skip_sign(".")) out->text.append(".").append(expect_any_name());
  out->test = find_test(out->text);
  if (!out->test) syntax_error(where_, line, fmt::format("no test named '{}'", out->text));
  const Token& next = current();
  const bool starts_argument = next.kind == Token::Kind::name || next.kind == Token::Kind::string ||
                               next.kind == Token::Kind::integer || next.kind == Token::Kind::real ||
                               next.is_sign("[") || next.is_sign("{");
  if (next.is_sign("(")) {
    out->arguments = call_arguments();
  } else if (starts_argument && !next.is_name("else") && !next.is_name("or") && !next.is_name("and")) {
    if (next.is_name("is")) fail("tests cannot be chained with 'is'");
    out->arguments.positional.push_back(postfix(primary()));
  }
  count_arguments(*out);
  return negated ? join(Expression::Kind::negation, line, std::move(out)) : std::move(out);
}

}  // namespace zeno::data::jinja
