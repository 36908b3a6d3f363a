// The values of a template: Python's, as far as templates see them. A Value is cheap to copy; what it points
// to never changes, except for namespaces, loops and one-shot iterators, as in Python. One thread: a value
// belongs to one rendering.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "zeno/data/jinja/budget.h"
#include "zeno/data/jinja/traced_text.h"

namespace zeno::data::jinja {

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  list,
  tuple,
  dict,
  range,
  view,      // dict.keys(), .values(), .items()
  iterator,  // what map, select, reverse … give: can be walked once
  name_space,
  loop,
  callable,  // macros, methods, global functions
};

// What a value points to. `nesting` counts the containers inside each other, so that no value is nested
// deeper than the stack can follow.
struct Object {
  virtual ~Object() = default;
  uint32_t nesting = 0;
};

class Value {
 public:
  Value() = default;  // undefined
  // `message` says what is undefined; the error is raised where the value is used.
  static Value undefined(std::string message);
  static Value none();
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value real(double value);
  static Value text(std::string value);
  // `markup`: safe for HTML, as markupsafe.Markup: what joins it is escaped.
  static Value text(TracedText value, bool markup = false);
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value dict(std::vector<std::pair<Value, Value>> items);  // keys differ from each other
  static Value iterator(std::vector<Value> items, std::string_view type = "generator");
  static Value of(Kind kind, std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return is_integral() || kind_ == Kind::real; }
  bool is_integral() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }

  // Each only for the kinds it names.
  bool as_bool() const { return integer_ != 0; }
  int64_t as_integer() const { return integer_; }  // integer, boolean
  double as_real() const { return kind_ == Kind::real ? real_ : double(integer_); }
  const std::string& as_text() const;                         // string; undefined: its message
  const TracedText& traced() const;                           // string
  bool is_markup() const;                                     // any
  const std::vector<Value>& items() const;                    // list, tuple
  const std::vector<std::pair<Value, Value>>& pairs() const;  // dict
  template <class T>
  T& object() const {
    return static_cast<T&>(*object_);
  }
  const std::shared_ptr<Object>& shared() const { return object_; }
  uint32_t nesting() const { return object_ ? object_->nesting : 0; }

  bool truth() const;
  // Python's name of its type: "str", "list", …
  std::string_view type_name() const;
  // Python's `is`.
  bool same_as(const Value& other) const;

  // Where it comes from; of a text, if that is one place. So do the bytes that are written of a number, or
  // the brackets of a list.
  Origin origin() const;
  Value from(Origin origin) &&;

 private:
  Kind kind_ = Kind::undefined;
  union {
    int64_t integer_ = 0;
    double real_;
  };
  Origin origin_;
  std::shared_ptr<Object> object_;  // shared: values are copied into lists, scopes and results
};

using Pairs = std::vector<std::pair<Value, Value>>;

struct Range : Object {
  int64_t start = 0, stop = 0, step = 1;
  int64_t size() const;
  int64_t at(int64_t index) const { return start + index * step; }
};

struct View : Object {
  enum class Part { keys, values, items } part = Part::items;
  Value dict;
  std::vector<Value> items() const;
};

struct Iterator : Object {
  std::vector<Value> items;
  size_t next = 0;
  std::string type;
};

struct Namespace : Object {
  Pairs attributes;
};

// The value of a key, or null. Keys are compared as Python compares them: 1, 1.0 and True are one key.
const Value* find(const Pairs& pairs, const Value& key);
const Value* find(const Pairs& pairs, std::string_view key);
void assign(Pairs& pairs, const Value& key, Value value);
// Keys are texts, numbers, booleans and none.
void require_hashable(const Value& key);

// Counts `inner` among what `outer` holds; too deep is an error.
void nest(Object& outer, const Value& inner);

// Throws the error of using an undefined value; of other values nothing.
void require_defined(const Value& value);

// Texts that are lent stay in the JSON, which must then outlive the value.
enum class Texts { copied, lent };
Value from_json(Budget& budget, const nlohmann::ordered_json& json, Origin origin, Texts texts);

}  // namespace zeno::data::jinja
