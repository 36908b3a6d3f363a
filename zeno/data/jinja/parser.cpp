#include "zeno/data/jinja/parser.h"

#include <fmt/core.h>

#include <algorithm>

namespace zeno::data::jinja {
namespace {

constexpr int kMaxParseDepth = 120;

}  // namespace

Parser::Level::Level(Parser& p) : parser(p) {
  if (parser.depth_ >= kMaxParseDepth)
    parser.fail(fmt::format("nested deeper than {} levels", kMaxParseDepth));
  ++parser.depth_;
}

bool Parser::skip_sign(std::string_view sign) {
  if (!current().is_sign(sign)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  take();
  return true;
}

void Parser::expect_sign(std::string_view sign) {
  if (!skip_sign(sign)) fail(fmt::format("expected '{}', got {}", sign, current().describe()));
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail(fmt::format("expected '{}', got {}", name, current().describe()));
}

void Parser::expect_block_end() {
  if (current().kind != Token::Kind::block_end)
    fail(fmt::format("expected %}}, got {}", current().describe()));
  take();
}

std::string Parser::expect_any_name() {
  if (current().kind != Token::Kind::name) fail(fmt::format("expected a name, got {}", current().describe()));
  return take().text;
}

Syntax Parser::run() {
  Syntax out;
  out.where = where_;
  out.body = block({});
  out.marks_generation = generations_ > 0 && captured_generations_ == 0;
  return out;
}

Block Parser::block(std::initializer_list<std::string_view> ends) {
  const Level level(*this);
  Block out;
  const int begin_line = current().line;
  while (current().kind != Token::Kind::end) {
    const Token token = take();
    if (token.kind == Token::Kind::data) {
      Statement text;
      text.line = token.line;
      text.text = token.text;
      out.push_back(std::move(text));
    } else if (token.kind == Token::Kind::print_begin) {
      Statement print = start(Statement::Kind::print);
      print.value = tuple(true, "", false);
      if (current().kind != Token::Kind::print_end)
        fail(fmt::format("expected }}}}, got {}", current().describe()));
      take();
      out.push_back(std::move(print));
    } else {
      if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return current().is_name(end); }))
        return out;
      statement(out);
      expect_block_end();
    }
  }
  if (ends.size() == 0) return out;
  syntax_error(where_, begin_line,
               fmt::format("the block that begins here is not closed with '{}'", *(ends.end() - 1)));
}

Block Parser::body(std::string_view end) {
  skip_sign(":");
  expect_block_end();
  Block out = block({end});
  take();
  return out;
}

Statement Parser::start(Statement::Kind kind) {
  Statement out;
  out.kind = kind;
  out.line = current().line;
  return out;
}

void Parser::statement(Block& out) {
  const Level level(*this);
  if (current().kind != Token::Kind::name)
    fail(fmt::format("expected the name of a tag, got {}", current().describe()));
  const std::string name = current().text;
  if (name == "for") return out.push_back(loop_statement());
  if (name == "if") return out.push_back(branch_statement());
  if (name == "set") return out.push_back(set_statement());
  if (name == "macro") return out.push_back(macro_statement());
  if (name == "call") return out.push_back(call_statement());
  if (name == "filter") return out.push_back(filter_statement());
  if (name == "with") return out.push_back(with_statement());
  if (name == "generation") return out.push_back(generation_statement());
  if (name == "break") return out.push_back(jump_statement(Statement::Kind::leave));
  if (name == "continue") return out.push_back(jump_statement(Statement::Kind::next));
  if (name == "print") return print_statement(out);
  fail(fmt::format("unknown or misplaced tag '{}'", name));
}

Statement Parser::loop_statement() {
  Statement out = start(Statement::Kind::loop);
  take();
  out.targets.push_back(target(false, "in"));
  if (out.targets[0].name == "loop") fail("cannot assign to 'loop' in a for block");
  expect_name("in");
  out.value = tuple(false, "recursive", false);
  if (skip_name("if")) out.condition = expression();
  out.recursive = skip_name("recursive");
  skip_sign(":");
  expect_block_end();
  ++around_.loops;
  out.body = block({"else", "endfor"});
  --around_.loops;
  if (take().text == "else") out.other = body("endfor");
  return out;
}

Statement Parser::branch_statement() {
  Statement out = start(Statement::Kind::branch);
  take();
  while (true) {
    Statement::Branch branch;
    branch.test = tuple(false, "", false);
    skip_sign(":");
    expect_block_end();
    branch.body = block({"elif", "else", "endif"});
    out.branches.push_back(std::move(branch));
    const std::string end = take().text;
    if (end == "elif") continue;
    if (end == "else") out.branches.push_back({nullptr, body("endif")});
    return out;
  }
}

Statement Parser::set_statement() {
  Statement out = start(Statement::Kind::assign);
  take();
  out.targets.push_back(target(true, ""));
  if (skip_sign("=")) {
    out.value = tuple(true, "", false);
    return out;
  }
  out.kind = Statement::Kind::assign_block;
  while (skip_sign("|")) out.value = filter(std::move(out.value));
  out.body = captured_body("endset", true);
  return out;
}

// The output of the body does not go straight to the result.
Block Parser::captured_body(std::string_view end, bool keeps_loops) {
  const Surroundings before = around_;
  around_.captured = true;
  if (!keeps_loops) around_.loops = 0;
  Block out = body(end);
  around_ = before;
  return out;
}

void Parser::signature(Statement& out) {
  expect_sign("(");
  while (!current().is_sign(")")) {
    if (!out.parameters.empty()) expect_sign(",");
    Parameter parameter;
    parameter.name = expect_any_name();
    if (skip_sign("=")) {
      parameter.otherwise = expression();
    } else if (!out.parameters.empty() && out.parameters.back().otherwise) {
      fail("a parameter without a default follows one with a default");
    }
    out.parameters.push_back(std::move(parameter));
  }
  expect_sign(")");
}

Statement Parser::macro_statement() {
  Statement out = start(Statement::Kind::macro);
  take();
  out.text = expect_any_name();
  const size_t seen = used_names_.size();
  signature(out);
  out.body = captured_body("endmacro", false);
  // Only a macro that speaks of them takes more arguments than it names.
  const auto uses = [&](std::string_view name) {
    return std::find(used_names_.begin() + std::ptrdiff_t(seen), used_names_.end(), name) !=
           used_names_.end();
  };
  out.takes_more_positional = uses("varargs");
  out.takes_more_named = uses("kwargs");
  out.takes_caller = uses("caller");
  return out;
}

Statement Parser::call_statement() {
  Statement out = start(Statement::Kind::call);
  take();
  if (current().is_sign("(")) signature(out);
  out.value = expression();
  if (out.value->kind != Expression::Kind::call) fail("expected the call of a macro after 'call'");
  out.body = captured_body("endcall", false);
  return out;
}

Statement Parser::filter_statement() {
  Statement out = start(Statement::Kind::filter);
  take();
  out.value = filter(nullptr);
  while (skip_sign("|")) out.value = filter(std::move(out.value));
  out.body = captured_body("endfilter", true);
  return out;
}

Statement Parser::with_statement() {
  Statement out = start(Statement::Kind::with);
  take();
  while (current().kind != Token::Kind::block_end) {
    if (!out.targets.empty()) expect_sign(",");
    out.targets.push_back(simple_target(false, ""));
    expect_sign("=");
    out.values.push_back(expression());
  }
  out.body = body("endwith");
  return out;
}

Statement Parser::generation_statement() {
  Statement out = start(Statement::Kind::generation);
  take();
  ++generations_;
  captured_generations_ += around_.captured;
  const int loops = std::exchange(around_.loops, 0);
  out.body = body("endgeneration");
  around_.loops = loops;
  return out;
}

Statement Parser::jump_statement(Statement::Kind kind) {
  if (around_.loops == 0) fail(fmt::format("'{}' outside a for block", current().text));
  Statement out = start(kind);
  take();
  return out;
}

void Parser::print_statement(Block& out) {
  take();
  for (bool first = true; current().kind != Token::Kind::block_end; first = false) {
    if (!first) expect_sign(",");
    Statement print = start(Statement::Kind::print);
    print.value = expression();
    out.push_back(std::move(print));
  }
}

Target Parser::target(bool with_attributes, std::string_view end) {
  Target out;
  out.kind = Target::Kind::tuple;
  out.line = current().line;
  bool several = false;
  while (true) {
    const bool ends = current().kind == Token::Kind::block_end || current().is_sign(")") ||
                      (!end.empty() && current().is_name(end));
    if (ends && several) break;
    out.parts.push_back(simple_target(with_attributes, end));
    if (!skip_sign(",")) break;
    several = true;
  }
  if (several) return out;
  Target only = std::move(out.parts[0]);
  return only;
}

Target Parser::simple_target(bool with_attributes, std::string_view end) {
  const Level level(*this);
  if (skip_sign("(")) {
    Target inner = target(with_attributes, end);
    expect_sign(")");
    return inner;
  }
  Target out;
  out.line = current().line;
  if (current().kind != Token::Kind::name) fail(fmt::format("cannot assign to {}", current().describe()));
  out.name = take().text;
  for (const std::string_view fixed : {"true", "false", "True", "False", "none", "None"}) {
    if (out.name == fixed) fail(fmt::format("cannot assign to '{}'", fixed));
  }
  if (with_attributes && skip_sign(".")) {
    out.kind = Target::Kind::attribute;
    out.attribute_name = expect_any_name();
  }
  return out;
}

Syntax parse_syntax(std::string_view source, const std::string& where) {
  return Parser(tokenize(source, where), where).run();
}

}  // namespace zeno::data::jinja
