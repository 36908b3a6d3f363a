// The tokenizer files of a model folder, which also say which tokens begin, end and pad a text. Reads files;
// keeps nothing.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "zeno/base/file.h"

namespace zeno::data::tokenizer {

class Pipeline;

// Whether read_folder() finds what it needs.
bool has_tokenizer(const Path& folder);
// tokenizer.json, or one put together from vocab.json and merges.txt.
nlohmann::json read_folder(const Path& folder);

struct SpecialIds {
  std::optional<int32_t> bos, eos, pad;
  std::vector<int32_t> stops;
};
// From the names that tokenizers usually have for them.
SpecialIds guess_special_ids(const Pipeline& pipeline);
// From tokenizer_config.json, special_tokens_map.json, generation_config.json and config.json, in this order;
// what none of them says is guessed.
SpecialIds read_special_ids(const Path& folder, const Pipeline& pipeline);

}  // namespace zeno::data::tokenizer
