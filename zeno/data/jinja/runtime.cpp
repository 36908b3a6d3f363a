#include "zeno/data/jinja/runtime.h"

#include <fmt/core.h>

namespace zeno::data::jinja {
namespace {

struct Native : Callable {
  Function function;
  Value call(Runtime& runtime, const Arguments& arguments) override { return function(runtime, arguments); }
};

}  // namespace

Value Runtime::new_namespace(Pairs attributes) {
  auto made = std::make_shared<Namespace>();
  made->attributes = std::move(attributes);
  budget.bytes(sizeof(Namespace));
  namespaces_.push_back(made);
  return Value::of(Kind::name_space, std::move(made));
}

Runtime::~Runtime() {
  for (const auto& space : namespaces_) space->attributes.clear();
}

Bound::Bound(std::string_view function, std::initializer_list<std::string_view> names, size_t required,
             const Arguments& arguments)
    : function_(function), values_(names.size()) {
  if (arguments.positional.size() > names.size()) {
    throw RenderError(fmt::format("{}: got {} arguments, expected at most {}", function,
                                  arguments.positional.size(), names.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    size_t i = 0;
    while (i < names.size() && names.begin()[i] != name) ++i;
    if (i == names.size()) throw RenderError(fmt::format("{}: unknown argument '{}'", function, name));
    if (values_[i]) throw RenderError(fmt::format("{}: argument '{}' given twice", function, name));
    values_[i] = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i])
      throw RenderError(fmt::format("{}: argument '{}' is missing", function, names.begin()[i]));
  }
}

int64_t Bound::integer(size_t i, int64_t otherwise) const {
  if (!has(i)) return otherwise;
  require_defined(*values_[i]);
  if (!values_[i]->is_integral()) {
    throw RenderError(fmt::format("{}: got a {}, expected an integer", function_, values_[i]->type_name()));
  }
  return values_[i]->as_integer();
}

const std::string& Bound::text(size_t i) const {
  require_defined(*values_[i]);
  if (!values_[i]->is(Kind::string)) {
    throw RenderError(fmt::format("{}: got a {}, expected a text", function_, values_[i]->type_name()));
  }
  return values_[i]->as_text();
}

Value make_function(std::string name, Function function) {
  auto made = std::make_shared<Native>();
  made->name = std::move(name);
  made->function = std::move(function);
  return Value::of(Kind::callable, std::move(made));
}

Value make_method(std::string name, const Value& self, Function function) {
  Value made = make_function(std::move(name), std::move(function));
  made.object<Object>().nesting = self.nesting() + 1;
  return made;
}

Value call(Runtime& runtime, const Value& callee, const Arguments& arguments) {
  require_defined(callee);
  if (!callee.is(Kind::callable) && !callee.is(Kind::loop)) {
    throw RenderError(fmt::format("a {} is not callable", callee.type_name()));
  }
  const Budget::Level level(runtime.budget);
  runtime.budget.step();
  return callee.object<Callable>().call(runtime, arguments);
}

}  // namespace zeno::data::jinja
