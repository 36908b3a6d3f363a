#include "zeno/data/jinja/evaluator.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "zeno/data/jinja/loop.h"
#include "zeno/data/jinja/operators.h"
#include "zeno/data/jinja/python_text.h"

namespace zeno::data::jinja {

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->parent.get()) {
    for (const auto& [known, value] : scope->variables) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [known, held] : variables) {
    if (known == name) {
      held = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

class Evaluator::Inner {
 public:
  Inner(Evaluator& evaluator, std::shared_ptr<Scope> parent)
      : evaluator_(evaluator), outer_(std::move(evaluator.scope_)) {
    evaluator.scope_ = std::make_shared<Scope>();
    evaluator.scope_->parent = std::move(parent);
  }
  explicit Inner(Evaluator& evaluator) : Inner(evaluator, evaluator.scope_) {}
  ~Inner() { evaluator_.scope_ = std::move(outer_); }
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;

 private:
  Evaluator& evaluator_;
  std::shared_ptr<Scope> outer_;
};

struct Evaluator::Macro : Callable {
  Evaluator* evaluator = nullptr;
  const Statement* node = nullptr;
  std::shared_ptr<Scope> scope;  // where it was written
  Value call(Runtime&, const Arguments& given) override { return evaluator->call_macro(*this, given); }
};

Evaluator::Evaluator(const Syntax& syntax, const Limits& limits, std::optional<int64_t> now)
    : syntax_(syntax), runtime_(limits, now), scope_(std::make_shared<Scope>()) {
  add_globals(*scope_, now.has_value());
}

Evaluator::~Evaluator() {
  for (const auto& scope : kept_) scope->variables.clear();
}

void Evaluator::run(std::span<const Variable> variables) {
  const Inner inner(*this);
  for (const Variable& variable : variables)
    scope_->set(variable.name, traced_variable(runtime_.budget, variable, sources_));
  run_block(syntax_.body);
}

void Evaluator::print(std::string_view text) {
  runtime_.budget.bytes(text.size() + sizeof(Stretch));
  out_->append(text, {.frame = frame_});
}

void Evaluator::print(const Value& value) {
  const bool is_text = value.is(Kind::string);
  const TracedText written = is_text ? TracedText() : str_of(runtime_, value);
  const TracedText& text = is_text ? value.traced() : written;
  runtime_.budget.bytes(text.memory() + sizeof(Stretch));
  out_->append(text, frame_);
}

Evaluator::Flow Evaluator::run_block(const Block& block) {
  const Budget::Level level(runtime_.budget);
  for (const Statement& statement : block) {
    const Flow flow = run_statement(statement);
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

Evaluator::Flow Evaluator::run_inner(const Block& block) {
  const Inner inner(*this);
  return run_block(block);
}

Evaluator::Flow Evaluator::run_statement(const Statement& statement) {
  runtime_.budget.step();
  runtime_.line = statement.line;
  switch (statement.kind) {
    case Statement::Kind::text:
      print(statement.text);
      break;
    case Statement::Kind::print:
      print(evaluate(*statement.value));
      break;
    case Statement::Kind::branch:
      return run_branch(statement);
    case Statement::Kind::loop:
      run_loop(statement, evaluate(*statement.value), 0);
      break;
    case Statement::Kind::assign: {
      const Value value = evaluate(*statement.value);
      // A loop over indices takes its element so.
      if (loops_ > 0 && frame_ == 0) enter_frame(value);
      assign(statement.targets[0], value);
      break;
    }
    case Statement::Kind::assign_block:
    case Statement::Kind::filter: {
      auto [text, flow] = capture(statement.body);
      if (flow != Flow::on) return flow;
      Value value = Value::text(std::move(text));
      if (statement.value) value = filter(*statement.value, &value);
      if (statement.kind == Statement::Kind::filter) {
        print(value);
      } else {
        assign(statement.targets[0], value);
      }
      break;
    }
    case Statement::Kind::macro:
      scope_->set(statement.text, make_macro(statement));
      break;
    case Statement::Kind::call:
      run_call(statement);
      break;
    case Statement::Kind::with:
      return run_with(statement);
    case Statement::Kind::generation:
      run_generation(statement);
      break;
    case Statement::Kind::leave:
      return Flow::leave;
    case Statement::Kind::next:
      return Flow::next;
  }
  return Flow::on;
}

Evaluator::Flow Evaluator::run_branch(const Statement& statement) {
  for (const Statement::Branch& branch : statement.branches) {
    if (!branch.test || evaluate(*branch.test).truth()) return run_block(branch.body);
  }
  return Flow::on;
}

void Evaluator::enter_frame(const Value& item) {
  if (item.is(Kind::dict) && sources_[item.origin().source].is_element()) frame_ = item.origin().source;
}

void Evaluator::run_loop(const Statement& statement, const Value& over, int64_t depth) {
  const std::shared_ptr<Loop> loop = std::make_shared<Loop>();
  const Value variable = Value::of(Kind::loop, loop);
  struct AtEnd {
    Loop& loop;
    ~AtEnd() { loop.end(); }
  } at_end{*loop};
  loop->source = iterate(runtime_, over);
  for (const Value& item : loop->source) nest(*loop, item);
  loop->depth0 = depth;
  const std::shared_ptr<Scope> outer = scope_;
  if (statement.condition) {
    loop->condition = [&](const Value& item) {
      const Inner inner(*this, outer);
      assign(statement.targets[0], item);
      return evaluate(*statement.condition).truth();
    };
  }
  if (statement.recursive) {
    loop->recurse = [&](const Value& items, const Loop& from) {
      const Inner inner(*this, outer);
      TracedText text;
      TracedText* const before = std::exchange(out_, &text);
      run_loop(statement, items, from.depth0 + 1);
      out_ = before;
      return Value::text(std::move(text));
    };
  }
  const uint32_t outer_frame = frame_;
  ++loops_;
  bool completed = false;  // jinja2 runs `else` unless some iteration came to its end
  for (size_t i = 0; loop->has(i); ++i) {
    loop->index0 = i;
    runtime_.budget.step(4);  // a scope, the target, `loop`
    const Inner inner(*this);
    scope_->set("loop", variable);
    frame_ = outer_frame;
    enter_frame(loop->items[i]);
    assign(statement.targets[0], loop->items[i]);
    const Flow flow = run_block(statement.body);
    completed |= flow == Flow::on;
    if (flow == Flow::leave) break;
  }
  --loops_;
  frame_ = outer_frame;
  if (!completed) run_inner(statement.other);
}

Evaluator::Flow Evaluator::run_with(const Statement& statement) {
  const std::vector<Value> values = evaluate_all(statement.values);
  const Inner inner(*this);
  for (size_t i = 0; i < values.size(); ++i) assign(statement.targets[i], values[i]);
  return run_block(statement.body);
}

void Evaluator::run_generation(const Statement& statement) {
  const size_t begin = text_.size();
  const bool outermost = out_ == &text_;
  run_inner(statement.body);
  if (!outermost || text_.size() == begin) return;
  // A block inside a block is already in its span.
  while (!generated_.empty() && generated_.back().begin >= begin) generated_.pop_back();
  generated_.push_back({begin, text_.size()});
}

std::pair<TracedText, Evaluator::Flow> Evaluator::capture(const Block& block) {
  TracedText text;
  TracedText* const before = std::exchange(out_, &text);
  const Flow flow = run_inner(block);
  out_ = before;
  return {std::move(text), flow};
}

Value Evaluator::make_macro(const Statement& statement) {
  auto macro = std::make_shared<Macro>();
  macro->name = statement.text;
  macro->evaluator = this;
  macro->node = &statement;
  macro->scope = scope_;
  if (kept_.empty() || kept_.back() != scope_) kept_.push_back(scope_);
  runtime_.budget.bytes(sizeof(Macro));
  return Value::of(Kind::callable, std::move(macro));
}

void Evaluator::run_call(const Statement& statement) {
  const Value body = make_macro(statement);
  const Expression& node = *statement.value;
  const Value callee = evaluate(*node.parts[0]);
  Arguments given = arguments(node.arguments);
  given.named.emplace_back("caller", body);
  print(call(runtime_, callee, given));
}

Value Evaluator::call_macro(const Macro& macro, const Arguments& given) {
  const Inner inner(*this, macro.scope);
  bind(*macro.node, given);
  TracedText text;
  TracedText* const before = std::exchange(out_, &text);
  run_block(macro.node->body);
  out_ = before;
  return Value::text(std::move(text));
}

void Evaluator::bind(const Statement& node, const Arguments& given) {
  const std::string name = node.kind == Statement::Kind::call ? "caller" : node.text;
  std::vector<bool> used(given.named.size(), false);
  const auto take_named = [&](std::string_view wanted) -> const Value* {
    for (size_t i = 0; i < given.named.size(); ++i) {
      if (given.named[i].first == wanted && !used[i]) return used[i] = true, &given.named[i].second;
    }
    return nullptr;
  };
  for (size_t i = 0; i < node.parameters.size(); ++i) {
    const Parameter& parameter = node.parameters[i];
    const Value* value = i < given.positional.size() ? &given.positional[i] : take_named(parameter.name);
    if (value) {
      scope_->set(parameter.name, *value);
    } else if (parameter.otherwise) {
      scope_->set(parameter.name, evaluate(*parameter.otherwise));
    } else {
      scope_->set(parameter.name, Value::undefined(fmt::format("parameter '{}' of '{}' was not given",
                                                               parameter.name, name)));
    }
  }
  if (node.takes_caller && std::none_of(node.parameters.begin(), node.parameters.end(),
                                        [](const Parameter& p) { return p.name == "caller"; })) {
    const Value* caller = take_named("caller");
    scope_->set("caller", caller ? *caller : Value::undefined("there is no caller"));
  }
  Pairs more_named;
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    if (!node.takes_more_named)
      throw RenderError(fmt::format("macro '{}' has no parameter '{}'", name, given.named[i].first));
    more_named.emplace_back(Value::text(given.named[i].first), given.named[i].second);
  }
  if (node.takes_more_named) scope_->set("kwargs", Value::dict(std::move(more_named)));
  const size_t taken = std::min(node.parameters.size(), given.positional.size());
  if (taken < given.positional.size() && !node.takes_more_positional) {
    throw RenderError(fmt::format("macro '{}': got {} arguments, expected at most {}", name,
                                  given.positional.size(), taken));
  }
  if (node.takes_more_positional) {
    scope_->set("varargs",
                Value::tuple({given.positional.begin() + std::ptrdiff_t(taken), given.positional.end()}));
  }
}

void Evaluator::assign(const Target& target, const Value& value) {
  switch (target.kind) {
    case Target::Kind::name:
      scope_->set(target.name, value);
      break;
    case Target::Kind::attribute: {
      runtime_.line = target.line;
      const Value* space = scope_->find(target.name);
      if (!space || !space->is(Kind::name_space)) {
        throw RenderError(fmt::format("cannot set '{}.{}': '{}' is not a namespace", target.name,
                                      target.attribute_name, target.name));
      }
      if (target.attribute_name.starts_with('_'))
        throw RenderError("namespace: an attribute begins with '_'");
      jinja::assign(space->object<Namespace>().attributes, Value::text(target.attribute_name), value);
      break;
    }
    case Target::Kind::tuple: {
      const std::vector<Value> items = iterate(runtime_, value);
      if (items.size() != target.parts.size()) {
        throw RenderError(
            fmt::format("unpacking: got {} values, expected {}", items.size(), target.parts.size()));
      }
      for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
      break;
    }
  }
}

}  // namespace zeno::data::jinja
