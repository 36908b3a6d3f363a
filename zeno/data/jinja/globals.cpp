// The functions every chat template may call.
#include <fmt/core.h>

#include "zeno/data/jinja/evaluator.h"
#include "zeno/data/jinja/format.h"
#include "zeno/data/jinja/operators.h"
#include "zeno/data/jinja/python_text.h"

namespace zeno::data::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;

Value make_range(Runtime&, const Arguments& arguments) {
  const Bound bound("range", {"start", "stop", "step"}, 1, arguments);
  auto range = std::make_shared<Range>();
  range->start = bound.has(1) ? bound.integer(0, 0) : 0;
  range->stop = bound.has(1) ? bound.integer(1, 0) : bound.integer(0, 0);
  range->step = bound.integer(2, 1);
  if (range->step == 0) throw RenderError("range: the step is 0");
  if (range->size() > kMaxRange) throw RenderError(fmt::format("range: more than {} items", kMaxRange));
  return Value::of(Kind::range, std::move(range));
}

// dict(mapping or pairs, **named)
Pairs make_pairs(Runtime& runtime, const Arguments& arguments) {
  Pairs out;
  if (arguments.positional.size() > 1) throw RenderError("dict: more than one positional argument");
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Kind::dict)) {
      out = source.pairs();
    } else {
      for (const Value& item : iterate(runtime, source)) {
        const std::vector<Value> pair = iterate(runtime, item);
        if (pair.size() != 2) throw RenderError("dict: expected pairs");
        require_hashable(pair[0]);
        runtime.budget.step(out.size());
        assign(out, pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) assign(out, Value::text(name), value);
  return out;
}

Value make_namespace(Runtime& runtime, const Arguments& arguments) {
  Pairs attributes = make_pairs(runtime, arguments);
  for (const auto& pair : attributes) {
    if (pair.first.is(Kind::string) && pair.first.as_text().starts_with('_')) {
      throw RenderError("namespace: an attribute begins with '_'");
    }
  }
  return runtime.new_namespace(std::move(attributes));
}

}  // namespace

void add_globals(Scope& scope, bool has_clock) {
  scope.set("range", make_function("range", make_range));
  scope.set("namespace", make_function("namespace", make_namespace));
  scope.set("dict", make_function("dict", [](Runtime& runtime, const Arguments& arguments) {
              return Value::dict(make_pairs(runtime, arguments));
            }));
  scope.set("raise_exception",
            make_function("raise_exception", [](Runtime& runtime, const Arguments& arguments) -> Value {
              const Bound bound("raise_exception", {"message"}, 1, arguments);
              throw RenderError(str_of(runtime, bound[0]).str());
            }));
  if (!has_clock) return;
  scope.set("strftime_now", make_function("strftime_now", [](Runtime& runtime, const Arguments& arguments) {
              const Bound bound("strftime_now", {"format"}, 1, arguments);
              return Value::text(time_text(bound.text(0), *runtime.now));
            }));
}

}  // namespace zeno::data::jinja
