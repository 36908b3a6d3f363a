// What functions, filters and tests of a rendering share: its budget, its clock, and the objects that could
// point to themselves. One rendering, one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "zeno/data/jinja/budget.h"
#include "zeno/data/jinja/value.h"

namespace zeno::data::jinja {

struct Runtime {
  Budget budget;
  std::optional<int64_t> now;  // seconds since 1970, for strftime_now
  int line = 0;                // of the node evaluated last, for errors

  // A namespace whose attributes are dropped when the rendering ends: it may hold itself.
  Value new_namespace(Pairs attributes);

  Runtime(const Limits& limits, std::optional<int64_t> time) : budget(limits), now(time) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

 private:
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments by position in a signature, as Python binds them: too many, unknown, doubled or missing ones are
// errors that name the function.
class Bound {
 public:
  Bound(std::string_view function, std::initializer_list<std::string_view> names, size_t required,
        const Arguments& arguments);
  bool has(size_t i) const { return values_[i].has_value(); }
  // Given and not None.
  bool set(size_t i) const { return has(i) && !values_[i]->is(Kind::none); }
  const Value& operator[](size_t i) const { return *values_[i]; }
  Value get(size_t i, Value otherwise) const { return has(i) ? *values_[i] : otherwise; }
  bool truth(size_t i, bool otherwise) const { return has(i) ? values_[i]->truth() : otherwise; }
  int64_t integer(size_t i, int64_t otherwise) const;
  const std::string& text(size_t i) const;

 private:
  std::string_view function_;
  std::vector<std::optional<Value>> values_;
};

struct Callable : Object {
  std::string name;
  virtual Value call(Runtime& runtime, const Arguments& arguments) = 0;
};

using Function = std::function<Value(Runtime&, const Arguments&)>;
Value make_function(std::string name, Function function);
// The same, nested in what it holds (a bound method holds its object).
Value make_method(std::string name, const Value& self, Function function);
Value call(Runtime& runtime, const Value& callee, const Arguments& arguments);

}  // namespace zeno::data::jinja
