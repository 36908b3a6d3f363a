#include "zeno/data/tokenizer/json_node.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/limits.h"

namespace zeno::data::tokenizer {

std::string shown(const nlohmann::json& json) {
  if (json.is_structured()) return fmt::format("an {}", json.type_name());
  return shortened(json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace), 60);
}

JsonNode::JsonNode(const nlohmann::json& json, std::string where, int depth)
    : json_(&json), where_(std::move(where)), depth_(depth) {
  if (depth > kMaxDepth) refuse("deeper nesting", fmt::format("at most {} levels", kMaxDepth));
}

void JsonNode::refuse(std::string_view got, std::string_view expected) const {
  fail(ErrorKind::data, "[tokenizer] {}: got {}, expected {}", where_, shortened(got, 120), expected);
}

void JsonNode::unknown_type(std::string_view kind) const {
  fail(ErrorKind::data,
       "[tokenizer] {}: the {} '{}' is not supported; tokenise the data beforehand and give a token file "
       "(docs/token_file.md)",
       where_, kind, shortened(type(), 60));
}

bool JsonNode::is_string() const { return json_->is_string(); }
bool JsonNode::is_array() const { return json_->is_array(); }
bool JsonNode::is_object() const { return json_->is_object(); }

std::optional<JsonNode> JsonNode::find(const char* key) const {
  if (!json_->is_object()) refuse(shown(*json_), "an object");
  const auto found = json_->find(key);
  if (found == json_->end() || found->is_null()) return std::nullopt;
  return JsonNode(*found, fmt::format("{}.{}", where_, shortened(key, 60)), depth_ + 1);
}

JsonNode JsonNode::at(const char* key) const {
  const std::optional<JsonNode> found = find(key);
  if (!found) refuse(fmt::format("no '{}'", key), "one");
  return *found;
}

std::vector<JsonNode> JsonNode::items() const {
  if (!json_->is_array()) refuse(shown(*json_), "an array");
  std::vector<JsonNode> nodes;
  nodes.reserve(json_->size());
  for (size_t i = 0; i < json_->size(); ++i)
    nodes.push_back(JsonNode((*json_)[i], fmt::format("{}[{}]", where_, i), depth_ + 1));
  return nodes;
}

std::string JsonNode::string() const {
  if (!json_->is_string()) refuse(shown(*json_), "a string");
  return json_->get<std::string>();
}

std::string JsonNode::string_up_to(size_t bytes) const {
  std::string text = string();
  if (text.size() > bytes) refuse(fmt::format("{} bytes", text.size()), fmt::format("at most {}", bytes));
  return text;
}

bool JsonNode::boolean() const {
  if (!json_->is_boolean()) refuse(shown(*json_), "true or false");
  return json_->get<bool>();
}

int64_t JsonNode::integer(int64_t low, int64_t high) const {
  const bool ok = json_->is_number_integer() && *json_ >= low && *json_ <= high;
  if (!ok) refuse(shown(*json_), fmt::format("an integer in {}..{}", low, high));
  return json_->get<int64_t>();
}

double JsonNode::number() const {
  if (!json_->is_number()) refuse(shown(*json_), "a number");
  return json_->get<double>();
}

std::string JsonNode::string_or(const char* key, std::string other) const {
  const auto found = find(key);
  return found ? found->string() : std::move(other);
}

bool JsonNode::boolean_or(const char* key, bool other) const {
  const auto found = find(key);
  return found ? found->boolean() : other;
}

}  // namespace zeno::data::tokenizer
