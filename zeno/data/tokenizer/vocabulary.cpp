#include <algorithm>
#include <nlohmann/json.hpp>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/json_node.h"
#include "zeno/data/tokenizer/limits.h"
#include "zeno/data/tokenizer/model.h"

namespace zeno::data::tokenizer {

Vocabulary Vocabulary::read(const JsonNode& node) {
  if (!node.json().is_object())
    node.refuse(fmt::format("a vocabulary of type {}", node.json().type_name()), "an object");
  Vocabulary vocabulary;
  vocabulary.ids.reserve(node.json().size());
  std::vector<bool> used;
  for (const auto& [text, value] : node.json().items()) {
    const bool ok = value.is_number_integer() && value >= 0 && value <= kMaxId;
    if (!ok) {
      fail(ErrorKind::data, "[tokenizer] {}: token '{}': got id {}, expected an integer in 0..{}",
           node.where(), shortened(text, 60), shown(value), kMaxId);
    }
    const auto id = value.get<int32_t>();
    if (size_t(id) >= used.size()) used.resize(std::max<size_t>(size_t(id) + 1, used.size() * 2));
    require(!used[size_t(id)], ErrorKind::data, "[tokenizer] {}: got two tokens with id {}, expected one",
            node.where(), id);
    used[size_t(id)] = true;
    vocabulary.ids.emplace(text, id);
  }
  return vocabulary;
}

std::optional<int32_t> Vocabulary::find(const std::string& text) const {
  const auto found = ids.find(text);
  if (found == ids.end() || hidden.contains(found->second)) return std::nullopt;
  return found->second;
}

}  // namespace zeno::data::tokenizer
