// Runs a syntax tree over a context. One rendering, one thread; the tree is only read.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "zeno/data/jinja/runtime.h"
#include "zeno/data/jinja/syntax.h"
#include "zeno/data/jinja/trace.h"
#include "zeno/data/text_span.h"

namespace zeno::data::jinja {

// Variables of a block. Macros keep the scope they were written in, hence shared.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;
  const Value* find(std::string_view name) const;  // here or further out
  void set(std::string_view name, Value value);    // here
};

class Evaluator {
 public:
  Evaluator(const Syntax& syntax, const Limits& limits, std::optional<int64_t> now);
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  void run(std::span<const Variable> variables);
  TracedText& text() { return text_; }
  std::vector<TextSpan>& generated() { return generated_; }
  std::vector<Source>& sources() { return sources_; }
  int line() const { return runtime_.line; }

 private:
  enum class Flow { on, leave, next };
  struct Macro;
  // A new innermost scope while it lives.
  class Inner;

  Flow run_block(const Block& block);
  Flow run_statement(const Statement& statement);
  Flow run_branch(const Statement& statement);
  void run_loop(const Statement& statement, const Value& over, int64_t depth);
  Flow run_inner(const Block& block);
  void run_generation(const Statement& statement);
  Flow run_with(const Statement& statement);
  // Runs with the output going to the returned text.
  std::pair<TracedText, Flow> capture(const Block& block);
  Value make_macro(const Statement& statement);
  Value call_macro(const Macro& macro, const Arguments& given);
  void bind(const Statement& node, const Arguments& given);
  void run_call(const Statement& statement);
  void assign(const Target& target, const Value& value);
  void print(const Value& value);
  void print(std::string_view text);
  void enter_frame(const Value& item);

  Value evaluate(const Expression& node);
  Value look_up(const Expression& node);
  Value evaluate_optional(const ExpressionPtr& node);  // none for null
  Value name(const Expression& node) const;
  Value dict(const Expression& node);
  Value compare_chain(const Expression& node);
  Value first_deciding(const Expression& node, bool until);
  Value filter(const Expression& node, const Value* block);
  Value concat(const Expression& node);
  Arguments arguments(const CallArguments& given);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& nodes);

  const Syntax& syntax_;
  Runtime runtime_;
  std::shared_ptr<Scope> scope_;
  std::vector<std::shared_ptr<Scope>> kept_;  // by macros; emptied in the end, since they hold each other
  TracedText text_;
  TracedText* out_ = &text_;
  std::vector<Source> sources_{Source{}};
  uint32_t frame_ = 0;  // the source of the element that the template is looping over
  int loops_ = 0;       // loops around what is run
  std::vector<TextSpan> generated_;
};

// range, namespace, dict, raise_exception and, where the rendering has a clock, strftime_now.
void add_globals(Scope& scope, bool has_clock);

}  // namespace zeno::data::jinja
