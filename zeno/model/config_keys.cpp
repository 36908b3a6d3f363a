#include "zeno/model/config_keys.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "zeno/base/error.h"
#include "zeno/base/python_json.h"

namespace zeno::model {
namespace {

using Json = nlohmann::json;

std::string shown(const Json& value) {
  const std::string text = unquote_special_numbers(value.dump(-1, ' ', true, Json::error_handler_t::replace));
  return text.size() > 80 ? text.substr(0, 80) + "..." : text;
}

struct Found {
  const char* key;
  const Json* value;
};

Found lookup(const Json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto entry = object.find(key);
    if (entry != object.end() && !entry->is_null()) return {key, &*entry};
  }
  return {*keys.begin(), nullptr};
}

void require_there(const Json* value, const std::string& where, const char* key) {
  require(value, ErrorKind::data, "[model] {}: has no \"{}\"; is it the config.json of a Hugging Face model?",
          where, key);
}

}  // namespace

const Json* ConfigKeys::find(std::initializer_list<const char*> keys) const {
  return lookup(object_, keys).value;
}

bool ConfigKeys::is_null(const char* key) const {
  const auto entry = object_.find(key);
  return entry != object_.end() && entry->is_null();
}

int64_t ConfigKeys::integer(std::initializer_list<const char*> keys, int64_t max,
                            std::optional<int64_t> fallback, int64_t min) const {
  const auto [key, value] = lookup(object_, keys);
  if (!value && fallback) return *fallback;
  require_there(value, where_, key);
  require(value->is_number_integer(), ErrorKind::data, "[model] {}: \"{}\" is {}, expected an integer",
          where_, key, shown(*value));
  const bool huge = value->is_number_unsigned() && value->get<uint64_t>() > uint64_t(max);
  const int64_t number = huge ? min - 1 : value->get<int64_t>();
  require(number >= min && number <= max, ErrorKind::data, "[model] {}: \"{}\" is {}, expected {} to {}",
          where_, key, shown(*value), min, max);
  return number;
}

double ConfigKeys::number(std::initializer_list<const char*> keys, double min, double max,
                          std::optional<double> fallback) const {
  const auto [key, value] = lookup(object_, keys);
  if (!value && fallback) return *fallback;
  require_there(value, where_, key);
  require(value->is_number(), ErrorKind::data, "[model] {}: \"{}\" is {}, expected a number", where_, key,
          shown(*value));
  const double number = value->get<double>();
  require(std::isfinite(number) && number >= min && number <= max, ErrorKind::data,
          "[model] {}: \"{}\" is {}, expected {} to {}", where_, key, shown(*value), min, max);
  return number;
}

bool ConfigKeys::boolean(const char* key, bool fallback) const {
  const Json* value = find({key});
  if (!value) return fallback;
  require(value->is_boolean(), ErrorKind::data, "[model] {}: \"{}\" is {}, expected true or false", where_,
          key, shown(*value));
  return value->get<bool>();
}

std::string ConfigKeys::string(std::initializer_list<const char*> keys,
                               std::optional<std::string> fallback) const {
  const auto [key, value] = lookup(object_, keys);
  if (!value && fallback) return *fallback;
  require_there(value, where_, key);
  require(value->is_string(), ErrorKind::data, "[model] {}: \"{}\" is {}, expected a string", where_, key,
          shown(*value));
  return value->get<std::string>();
}

std::optional<ConfigKeys> ConfigKeys::object(std::initializer_list<const char*> keys) const {
  const auto [key, value] = lookup(object_, keys);
  if (!value) return std::nullopt;
  require(value->is_object(), ErrorKind::data, "[model] {}: \"{}\" is {}, expected an object", where_, key,
          shown(*value));
  return ConfigKeys(*value, where_ + ": " + key);
}

}  // namespace zeno::model
