// The filters of filters.h between values and JSON.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "zeno/base/error.h"
#include "zeno/data/jinja/filters/filters.h"
#include "zeno/data/jinja/python_text.h"
#include "zeno/data/parse_json.h"

namespace zeno::data::jinja {
namespace {

JsonStyle json_style(const Bound& bound) {
  JsonStyle style;
  style.ensure_ascii = bound.truth(0, false);
  style.sort_keys = bound.truth(3, false);
  if (bound.set(1)) {
    style.item_separator.assign(1, ',');
    const bool text = bound[1].is(Kind::string);
    style.indent = text ? bound[1].as_text()
                        : std::string(size_t(std::clamp<int64_t>(bound.integer(1, 0), 0, 1000)), ' ');
  }
  if (bound.set(2)) {
    const Value& pair = bound[2];
    const bool good = (pair.is(Kind::tuple) || pair.is(Kind::list)) && pair.items().size() == 2 &&
                      pair.items()[0].is(Kind::string) && pair.items()[1].is(Kind::string);
    if (!good) throw RenderError("tojson: separators must be two texts");
    style.item_separator = pair.items()[0].as_text();
    style.key_separator = pair.items()[1].as_text();
  }
  return style;
}

Value to_json(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, arguments);
  return Value::text(json_of(runtime, subject, json_style(bound)));
}

// Some templates read the arguments of a call that come as text. (Not in transformers, which refuses these
// templates.)
Value from_json_text(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Bound bound("from_json", {}, 0, arguments);
  require_defined(subject);
  if (!subject.is(Kind::string)) return subject;
  try {
    return from_json(runtime.budget, parse_json(subject.as_text()), subject.origin(), Texts::copied);
  } catch (const Error& error) {
    throw RenderError(fmt::format("from_json: {}", error.what()));
  }
}

}  // namespace

std::vector<NamedFilter> json_filters() { return {{"tojson", to_json}, {"from_json", from_json_text}}; }

}  // namespace zeno::data::jinja
