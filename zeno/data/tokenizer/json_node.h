// A place in a JSON file that knows its path, so that every complaint names it. A view: the document must
// outlive it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zeno::data::tokenizer {

class JsonNode {
 public:
  JsonNode(const nlohmann::json& json, std::string where) : JsonNode(json, std::move(where), 0) {}

  const nlohmann::json& json() const { return *json_; }
  const std::string& where() const { return where_; }
  bool is_string() const;
  bool is_array() const;
  bool is_object() const;

  // A member that must be there; null counts as missing.
  JsonNode at(const char* key) const;
  // A member that may be missing or null.
  std::optional<JsonNode> find(const char* key) const;
  std::vector<JsonNode> items() const;  // of an array

  // The value of this node, or of a member; a wrong type is an Error(data).
  std::string string() const;
  bool boolean() const;
  int64_t integer(int64_t low, int64_t high) const;
  double number() const;
  std::string string_up_to(size_t bytes) const;
  std::string string(const char* key) const { return at(key).string(); }
  std::string string_or(const char* key, std::string other) const;
  bool boolean_or(const char* key, bool other) const;
  std::string type() const { return string("type"); }

  [[noreturn]] void refuse(std::string_view got, std::string_view expected) const;
  // For a "type" we do not have.
  [[noreturn]] void unknown_type(std::string_view kind) const;

 private:
  JsonNode(const nlohmann::json& json, std::string where, int depth);

  const nlohmann::json* json_;
  std::string where_;
  int depth_;
};

// A value, short enough for one line of an error.
std::string shown(const nlohmann::json& json);

}  // namespace zeno::data::tokenizer
