#include "zeno/data/jinja/trace.h"

#include <nlohmann/json.hpp>

namespace zeno::data::jinja {
namespace {

Origin new_source(std::vector<Source>& sources, Source source) {
  sources.push_back(std::move(source));
  return {.source = uint32_t(sources.size() - 1)};
}

}  // namespace

Value traced_variable(Budget& budget, const std::string& name, const nlohmann::ordered_json& json,
                      std::vector<Source>& sources) {
  const Origin whole = new_source(sources, {.variable = name});
  if (!json.is_array()) return from_json(budget, json, whole);
  std::vector<Value> elements;
  elements.reserve(json.size());
  for (size_t i = 0; i < json.size(); ++i) {
    const Origin element = new_source(sources, {.variable = name, .element = int64_t(i)});
    if (!json[i].is_object()) {
      elements.push_back(from_json(budget, json[i], element));
      continue;
    }
    Pairs pairs;
    pairs.reserve(json[i].size());
    for (const auto& [key, value] : json[i].items()) {
      const Origin field = new_source(sources, {.variable = name, .element = int64_t(i), .key = key});
      pairs.emplace_back(Value::text(TracedText(key, element)), from_json(budget, value, field));
    }
    elements.push_back(Value::dict(std::move(pairs)).from(element));
  }
  return Value::list(std::move(elements)).from(whole);
}

}  // namespace zeno::data::jinja
