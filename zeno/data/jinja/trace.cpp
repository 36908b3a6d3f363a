#include "zeno/data/jinja/trace.h"

#include <nlohmann/json.hpp>

namespace zeno::data::jinja {
namespace {

Origin new_source(std::vector<Source>& sources, Source source) {
  sources.push_back(std::move(source));
  return {.source = uint32_t(sources.size() - 1)};
}

Value traced_element(Budget& budget, const std::string& name, size_t i, const nlohmann::ordered_json& json,
                     std::vector<Source>& sources) {
  const Origin element = new_source(sources, {.variable = name, .element = int64_t(i)});
  if (!json.is_object()) return from_json(budget, json, element, Texts::lent);
  Pairs pairs;
  pairs.reserve(json.size());
  for (const auto& [key, value] : json.get_ref<const nlohmann::ordered_json::object_t&>()) {
    const Origin field = new_source(sources, {.variable = name, .element = int64_t(i), .key = key});
    pairs.emplace_back(Value::text(TracedText::lent(key, element)),
                       from_json(budget, value, field, Texts::lent));
  }
  return Value::dict(std::move(pairs)).from(element);
}

}  // namespace

Value traced_variable(Budget& budget, const Variable& variable, std::vector<Source>& sources) {
  const Origin whole = new_source(sources, {.variable = variable.name});
  const auto* const list = std::get_if<JsonList>(&variable.value);
  const nlohmann::ordered_json* const json = list ? nullptr : std::get<0>(variable.value);
  if (json && !json->is_array()) return from_json(budget, *json, whole, Texts::lent);
  const size_t size = list ? list->size() : json->size();
  std::vector<Value> elements;
  elements.reserve(size);
  for (size_t i = 0; i < size; ++i) {
    elements.push_back(traced_element(budget, variable.name, i, list ? *(*list)[i] : (*json)[i], sources));
  }
  return Value::list(std::move(elements)).from(whole);
}

}  // namespace zeno::data::jinja
