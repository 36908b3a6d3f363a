// Tokens to a syntax tree. Unknown tags, filters and tests are refused here, by name; every error is a
// zeno::Error(data) with template and line.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/data/jinja/lexer.h"
#include "zeno/data/jinja/syntax.h"

namespace zeno::data::jinja {

Syntax parse_syntax(std::string_view source, const std::string& where);

// One parse. The statement half is in parser.cpp, the expression half in expression_parser.cpp.
class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& where) : tokens_(std::move(tokens)), where_(where) {}
  Syntax run();

 private:
  // One level of nesting while it lives.
  struct Level {
    explicit Level(Parser& parser);
    ~Level() { --parser.depth_; }
    Parser& parser;
  };
  // What the statements being parsed are inside of.
  struct Surroundings {
    int loops = 0;          // that break and continue may leave
    bool captured = false;  // the output goes to a variable, not to the result
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  [[noreturn]] void fail(const std::string& what) const { syntax_error(where_, current().line, what); }
  bool skip_sign(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect_sign(std::string_view sign);
  void expect_name(std::string_view name);
  void expect_block_end();
  std::string expect_any_name();

  // Statements up to a tag that `ends` names, which stays current; without `ends` to the end of the template.
  Block block(std::initializer_list<std::string_view> ends);
  // `%}`, statements, the end tag; leaves before its %}.
  Block body(std::string_view end);
  void statement(Block& out);
  Statement loop_statement();
  Statement branch_statement();
  Statement set_statement();
  Statement macro_statement();
  Statement call_statement();
  Statement filter_statement();
  Statement with_statement();
  Statement generation_statement();
  Statement jump_statement(Statement::Kind kind);
  void print_statement(Block& out);
  void signature(Statement& statement);
  Block captured_body(std::string_view end, bool keeps_loops);
  Target target(bool with_attributes, std::string_view end);
  Target simple_target(bool with_attributes, std::string_view end);
  Statement start(Statement::Kind kind);

  ExpressionPtr expression(bool with_choice = true);
  ExpressionPtr tuple(bool with_choice, std::string_view end_name, bool in_parentheses);
  ExpressionPtr choice();
  ExpressionPtr any_of();
  ExpressionPtr all_of();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr name_or_constant();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr filtered(ExpressionPtr node);
  ExpressionPtr subscript(ExpressionPtr node);
  ExpressionPtr subscript_index(ExpressionPtr node);
  ExpressionPtr call(ExpressionPtr node);
  ExpressionPtr filter(ExpressionPtr node);
  ExpressionPtr test(ExpressionPtr node);
  CallArguments call_arguments();
  void call_argument(CallArguments& out);

  ExpressionPtr make(Expression::Kind kind, int line) const;
  // Joins the parts to the node and checks how deep it has become.
  template <class... Parts>
  ExpressionPtr join(Expression::Kind kind, int line, Parts... parts) {
    ExpressionPtr node = make(kind, line);
    (add_part(*node, std::move(parts)), ...);
    return node;
  }
  void add_part(Expression& node, ExpressionPtr part) const;
  void count_arguments(Expression& node) const;
  void deepen(Expression& node, const ExpressionPtr& part) const;

  std::vector<Token> tokens_;
  const std::string& where_;
  size_t at_ = 0;
  int depth_ = 0;
  Surroundings around_;
  std::vector<std::string> used_names_;  // varargs, kwargs, caller: seen so far
  int generations_ = 0, captured_generations_ = 0;
};

}  // namespace zeno::data::jinja
