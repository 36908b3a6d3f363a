#include "zeno/data/tokenizer/folder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/python_json.h"
#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/json_node.h"
#include "zeno/data/tokenizer/limits.h"
#include "zeno/data/tokenizer/pipeline.h"
#include "zeno/data/tokenizer/word_scanner.h"

namespace zeno::data::tokenizer {
namespace {

using Json = nlohmann::json;

// Names under which tokenizers keep the token that ends a document, the likeliest first.
constexpr const char* kEosNames[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};

Json read_json(const Path& path) try {
  std::string text = read_file(path, kMaxFileBytes);
  check_json_limits(text, fmt::format("[tokenizer] {}", path.string()), kJsonLimits);
  return Json::parse(quote_special_numbers(std::move(text)));
} catch (const Json::exception& error) {
  fail(ErrorKind::data, "[tokenizer] {}: not JSON: {}", path.string(), shortened(error.what(), 200));
}

Json read_json_if_there(const Path& path) { return file_exists(path) ? read_json(path) : Json::object(); }

Json read_merges(const Path& path) {
  Json merges = Json::array();
  std::istringstream lines(read_file(path, kMaxFileBytes));
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(line);
    require(merges.size() <= size_t(kMaxId), ErrorKind::data, "[tokenizer] {}: more than {} lines",
            path.string(), kMaxId);
  }
  return merges;
}

// The text of a token given as "…" or {"content": "…"}.
std::optional<std::string> token_text(const Json& file, const std::string& key) {
  if (!file.is_object() || !file.contains(key)) return std::nullopt;
  const Json& value = file.at(key);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value.at("content").is_string()) {
    return value.at("content").get<std::string>();
  }
  return std::nullopt;
}

// Added tokens of a folder without tokenizer.json: those of the config, of added_tokens.json, and the ones
// that have a role.
Json added_tokens(const Path& folder, const Json& config, const Json& vocab) {
  Json tokens = Json::array();
  std::set<std::string> listed;
  if (config.contains("added_tokens_decoder") && config.at("added_tokens_decoder").is_object()) {
    for (const auto& [id, token] : config.at("added_tokens_decoder").items()) {
      Json entry = token;
      const bool number = !id.empty() && id.size() < 9 &&
                          std::ranges::all_of(id, [](char c) { return c >= '0' && c <= '9'; });
      require(number && entry.is_object(), ErrorKind::data,
              "[tokenizer] {}: added_tokens_decoder: got '{}', expected an id and its token",
              (folder / "tokenizer_config.json").string(), shortened(id, 60));
      entry["id"] = std::stoi(id);
      if (const auto text = token_text(config.at("added_tokens_decoder"), id)) listed.insert(*text);
      tokens.push_back(std::move(entry));
    }
  }
  const Json more = read_json_if_there(folder / "added_tokens.json");
  for (const auto& [text, id] : more.items()) {
    if (listed.insert(text).second)
      tokens.push_back(
          {{"content", text}, {"id", id}, {"special", text.starts_with("<|")}, {"normalized", false}});
  }
  const Json map = read_json_if_there(folder / "special_tokens_map.json");
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    auto text = token_text(config, key);
    if (!text) text = token_text(map, key);
    if (!text && std::string_view(key) != "pad_token") text = kEosNames[0];  // GPT-2's own
    if (text && vocab.contains(*text) && listed.insert(*text).second) {
      tokens.push_back(
          {{"content", *text}, {"id", vocab.at(*text)}, {"special", true}, {"normalized", false}});
    }
  }
  return tokens;
}

Json from_vocab_and_merges(const Path& folder) {
  const Path config_path = folder / "tokenizer_config.json";
  const Json config = read_json_if_there(config_path);
  const std::string kind =
      config.is_object() ? config.value("tokenizer_class", Json("GPT2Tokenizer")).dump() : "";
  const bool gpt2 = kind.starts_with("\"GPT2Tokenizer"), qwen2 = kind.starts_with("\"Qwen2Tokenizer");
  require(
      gpt2 || qwen2, ErrorKind::data,
      "[tokenizer] {}: tokenizer_class: got {}, expected GPT2Tokenizer or Qwen2Tokenizer for vocab.json and "
      "merges.txt; write a tokenizer.json with transformers",
      config_path.string(), shortened(kind, 60));
  const Json prefix = config.value("add_prefix_space", Json(false));
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", prefix.is_boolean() && prefix.get<bool>()},
                           {"trim_offsets", gpt2},
                           {"use_regex", gpt2}};
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", std::string(word_regex(WordStyle::qwen2))}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  Json vocab = read_json(folder / "vocab.json");
  Json root = {{"added_tokens", added_tokens(folder, config, vocab)},
               {"pre_tokenizer", byte_level},
               {"post_processor", byte_level},
               {"decoder", {{"type", "ByteLevel"}}},
               {"model", {{"type", "BPE"}}}};
  root["model"]["vocab"] = std::move(vocab);
  root["model"]["merges"] = read_merges(folder / "merges.txt");
  if (qwen2) {
    root["normalizer"] = {{"type", "NFC"}};
    root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}};
  }
  return root;
}

// Ids under `key`, which may be one, a list or missing. Ids the tokenizer does not have are left out: models
// are padded with ids that no text has.
std::vector<int32_t> ids_of(const Json& file, const char* key, const Pipeline& pipeline) {
  std::vector<int32_t> ids;
  if (!file.is_object() || !file.contains(key)) return ids;
  const Json& value = file.at(key);
  const auto add = [&](const Json& id) {
    if (id.is_number_integer() && id >= 0 && id <= kMaxId && pipeline.has(id.get<int64_t>()))
      ids.push_back(id.get<int32_t>());
  };
  if (value.is_array())
    std::ranges::for_each(value, add);
  else
    add(value);
  return ids;
}

}  // namespace

bool has_tokenizer(const Path& folder) {
  return file_exists(folder / "tokenizer.json") ||
         (file_exists(folder / "vocab.json") && file_exists(folder / "merges.txt"));
}

Json read_folder(const Path& folder) {
  const Path path = folder / "tokenizer.json";
  if (file_exists(path)) return read_json(path);
  require(has_tokenizer(folder), ErrorKind::data,
          "[tokenizer] {}: no such file, and no vocab.json with merges.txt; a model folder needs a tokenizer "
          "to read text: write one with `zeno init` or transformers, or give a token file "
          "(docs/token_file.md) instead of text",
          path.string());
  return from_vocab_and_merges(folder);
}

SpecialIds guess_special_ids(const Pipeline& pipeline) {
  SpecialIds ids;
  for (const char* name : kEosNames) {
    const auto is_name = [&](const AddedToken& token) { return token.content == name; };
    const auto found = std::ranges::find_if(pipeline.added().tokens(), is_name);
    if (found == pipeline.added().tokens().end()) continue;
    ids.eos = found->id;
    ids.stops = {found->id};
    break;
  }
  return ids;
}

SpecialIds read_special_ids(const Path& folder, const Pipeline& pipeline) {
  const Json names[] = {read_json_if_there(folder / "tokenizer_config.json"),
                        read_json_if_there(folder / "special_tokens_map.json")};
  const Json numbers[] = {read_json_if_there(folder / "generation_config.json"),
                          read_json_if_there(folder / "config.json")};
  const auto find = [&](const std::string& key) -> std::optional<int32_t> {
    for (const Json& file : names) {
      if (const auto text = token_text(file, key)) {
        if (const auto id = pipeline.id_of(*text)) return id;
      }
    }
    for (const Json& file : numbers) {
      const std::vector<int32_t> ids = ids_of(file, (key + "_id").c_str(), pipeline);
      if (!ids.empty()) return ids.front();
    }
    return std::nullopt;
  };
  SpecialIds ids{find("bos_token"), find("eos_token"), find("pad_token"), {}};
  if (!ids.eos) ids.eos = guess_special_ids(pipeline).eos;
  if (ids.eos) ids.stops.push_back(*ids.eos);
  for (const Json& file : numbers) {
    const std::vector<int32_t> more = ids_of(file, "eos_token_id", pipeline);
    for (const int32_t id : more) {
      if (std::ranges::find(ids.stops, id) == ids.stops.end()) ids.stops.push_back(id);
    }
    if (!more.empty()) break;  // config.json only where generation_config.json is silent
  }
  return ids;
}

}  // namespace zeno::data::tokenizer
