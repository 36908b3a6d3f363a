// The syntax tree of a template. Built by the parser, never changed afterwards: renderings on several threads
// share it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "zeno/data/jinja/filters/filters.h"
#include "zeno/data/jinja/operators.h"
#include "zeno/data/jinja/predicates.h"

namespace zeno::data::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional, more_named;  // *args, **kwargs; or null
};

struct Expression {
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    real,
    string,
    name,       // text
    list,       // parts
    tuple,      // parts
    dict,       // parts: key, value, key, value, …
    attribute,  // parts[0].text
    item,       // parts[0][parts[1]]
    slice,      // parts[0][parts[1]:parts[2]:parts[3]], bounds may be null
    call,       // parts[0](arguments)
    filter,     // parts[0] | text(arguments); no part: of a block
    test,       // parts[0] is text(arguments)
    negate,
    plus,
    binary,    // parts[0] op parts[1]
    concat,    // parts joined as texts
    compare,   // parts[0] comparisons[0] parts[1] comparisons[1] …
    all_of,    // parts[0] and parts[1] and …
    any_of,    // parts[0] or parts[1] or …
    negation,  // not parts[0]
    choice,    // parts[0] if parts[1] else parts[2], which may be null
  };
  Kind kind = Kind::none;
  int line = 0;
  int depth = 1;  // levels of expressions in it
  std::string text;
  int64_t integer = 0;
  double real = 0;
  std::vector<ExpressionPtr> parts;
  CallArguments arguments;
  Operator op = Operator::add;
  std::vector<Comparison> comparisons;
  Filter filter = nullptr;
  Test test = nullptr;
};

// What a value is assigned to.
struct Target {
  enum class Kind : uint8_t { name, attribute, tuple } kind = Kind::name;
  int line = 0;
  std::string name, attribute_name;  // name, or name.attribute_name of a namespace
  std::vector<Target> parts;         // tuple
};

struct Statement;
using Block = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  // or null
};

struct Statement {
  enum class Kind : uint8_t {
    text,          // text
    print,         // value
    branch,        // the first of `branches` whose test holds; a null test always does
    loop,          // for target in value if condition: body, else: other
    assign,        // set target = value
    assign_block,  // set target | filters: body
    macro,         // name(parameters): body
    call,          // call(parameters) value: body
    filter,        // filter: body
    with,          // with targets = values: body
    generation,    // body is the assistant's text
    leave,         // break
    next,          // continue
  };
  struct Branch {
    ExpressionPtr test;
    Block body;
  };
  Kind kind = Kind::text;
  int line = 0;
  std::string text;  // text; or the macro's name
  ExpressionPtr value, condition;
  bool recursive = false;
  std::vector<Target> targets;
  std::vector<ExpressionPtr> values;  // of with
  std::vector<Parameter> parameters;
  bool takes_more_positional = false, takes_more_named = false, takes_caller = false;
  Block body, other;
  std::vector<Branch> branches;
};

struct Syntax {
  std::string where;
  Block body;
  bool marks_generation =
      false;  // {% generation %} is there, and only where its place in the result is known
};

}  // namespace zeno::data::jinja
