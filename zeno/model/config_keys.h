// Typed, range-checked access to the keys of a config.json; a wrong value is an Error(data) naming file and
// key. Only for the .cpp files of this folder. Does not own the JSON.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace zeno::model {

class ConfigKeys {
 public:
  ConfigKeys(const nlohmann::json& object, std::string where) : object_(object), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  // The first of the keys that is there and not null; nullptr if none is.
  const nlohmann::json* find(std::initializer_list<const char*> keys) const;
  bool has(const char* key) const { return find({key}) != nullptr; }
  bool is_null(const char* key) const;  // there, and null: some defaults differ from those of an absent key

  // Without a fallback the key must be there. Several keys: names of the same thing, the first one wins.
  int64_t integer(std::initializer_list<const char*> keys, int64_t max, std::optional<int64_t> fallback = {},
                  int64_t min = 1) const;
  double number(std::initializer_list<const char*> keys, double min, double max,
                std::optional<double> fallback = {}) const;
  bool boolean(const char* key, bool fallback) const;
  std::string string(std::initializer_list<const char*> keys, std::optional<std::string> fallback = {}) const;
  // An object below this one; nothing when absent or null.
  std::optional<ConfigKeys> object(std::initializer_list<const char*> keys) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
};

}  // namespace zeno::model
