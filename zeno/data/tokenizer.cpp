#include "zeno/data/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "zeno/base/error.h"

namespace zeno::data {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kLater =
    "only byte-level tokenizers without merges are read so far; tokenise the data beforehand and give a "
    "token file "
    "(docs/token_file.md)";
// Names under which tokenizers keep the token that ends a document.
constexpr std::string_view kEosNames[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
// More ids than any tokenizer has; keeps a hostile id from becoming a huge allocation.
constexpr int64_t kMaxTokens = int64_t(1) << 24;

std::string utf8_of(uint32_t code) {  // below 0x800, which the byte table never leaves
  if (code < 0x80) return std::string(1, char(code));
  return {char(0xc0 | (code >> 6)), char(0x80 | (code & 0x3f))};
}

// GPT-2's table: printable Latin-1 bytes stand for themselves, the others follow from U+0100 in order, so
// that a token is always printable text.
std::array<std::string, 256> make_byte_names() {
  std::array<std::string, 256> names;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    names[byte] = utf8_of(printable ? byte : next++);
  }
  return names;
}

const std::array<std::string, 256>& byte_names() {
  static const std::array<std::string, 256> names = make_byte_names();
  return names;
}

// The bytes a vocabulary entry stands for; an entry with characters outside the table stands for itself.
std::string bytes_of(const std::string& token) {
  static const auto byte_of = [] {
    std::unordered_map<std::string, char> map;
    for (int byte = 0; byte < 256; ++byte) map.emplace(byte_names()[size_t(byte)], char(byte));
    return map;
  }();
  std::string bytes;
  for (size_t i = 0; i < token.size();) {
    const size_t length = uint8_t(token[i]) < 0x80 ? 1 : 2;
    const auto found = byte_of.find(token.substr(i, length));
    if (found == byte_of.end()) return token;
    bytes += found->second;
    i += length;
  }
  return bytes;
}

bool is_byte_level(const Json& part) {
  return part.is_null() || part.value("type", std::string()) == "ByteLevel";
}

// Refuses whatever would make Hugging Face's result differ from one token per byte.
void check_kind(const Json& root, std::string_view where) {
  const Json& model = root.at("model");
  const std::string type = model.value("type", std::string("BPE"));
  require(type == "BPE", ErrorKind::data, "[tokenizer] {}: got model type {}, expected BPE; {}", where, type,
          kLater);
  const size_t merges = model.contains("merges") ? model.at("merges").size() : 0;
  require(merges == 0, ErrorKind::data, "[tokenizer] {}: got {} merges, expected none; {}", where, merges,
          kLater);
  const Json normalizer = root.value("normalizer", Json());
  require(normalizer.is_null(), ErrorKind::data, "[tokenizer] {}: got a normalizer, expected none; {}", where,
          kLater);
  const Json splitter = root.value("pre_tokenizer", Json());
  require(is_byte_level(splitter), ErrorKind::data,
          "[tokenizer] {}: got pre_tokenizer {}, expected ByteLevel; {}", where,
          splitter.is_object() ? splitter.value("type", std::string()) : splitter.dump(), kLater);
  const bool prefix = splitter.is_object() && splitter.value("add_prefix_space", true);
  require(!prefix, ErrorKind::data, "[tokenizer] {}: got add_prefix_space true, expected false; {}", where,
          kLater);
}

int32_t checked_id(const Json& value, const std::string& token, std::string_view where) {
  const bool ok = value.is_number_integer() && value >= 0 && value < kMaxTokens;
  require(ok, ErrorKind::data, "[tokenizer] {}: token '{}': got id {}, expected an integer in 0..{}", where,
          token, value.dump(), kMaxTokens - 1);
  return value.get<int32_t>();
}

void place(std::vector<std::optional<std::string>>& texts, int32_t id, std::string text,
           std::string_view where) {
  if (size_t(id) >= texts.size()) texts.resize(size_t(id) + 1);
  require(!texts[size_t(id)], ErrorKind::data, "[tokenizer] {}: got two tokens with id {}, expected one",
          where, id);
  texts[size_t(id)] = std::move(text);
}

}  // namespace

Tokenizer Tokenizer::open(const Path& folder) {
  const Path path = folder / "tokenizer.json";
  require(file_exists(path), ErrorKind::data,
          "[tokenizer] {}: no such file; a model folder needs a tokenizer to read text: write one with `zeno "
          "init`, "
          "or give a token file (docs/token_file.md) instead of text",
          path.string());
  return parse(read_file(path), path.string());
}

Tokenizer Tokenizer::parse(std::string_view json, std::string_view where) try {
  const Json root = Json::parse(json);
  check_kind(root, where);
  const Json& vocab = root.at("model").at("vocab");
  require(vocab.is_object(), ErrorKind::data, "[tokenizer] {}: got a vocab of type {}, expected an object",
          where, vocab.type_name());

  Tokenizer result;
  for (const auto& [token, value] : vocab.items()) {
    place(result.text_, checked_id(value, token, where), bytes_of(token), where);
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    const auto found = vocab.find(byte_names()[byte]);
    require(found != vocab.end(), ErrorKind::data,
            "[tokenizer] {}: vocab has no token '{}' for byte {:#04x}: expected all 256 bytes; {}", where,
            byte_names()[byte], byte, kLater);
    result.id_of_byte_[byte] = found->get<int32_t>();
  }

  size_t best = std::size(kEosNames);
  for (const Json& entry : root.value("added_tokens", Json::array())) {
    const std::string token = entry.at("content");
    const int32_t id = checked_id(entry.at("id"), token, where);
    // Special tokens may be listed in the vocabulary as well; there they must have the same id.
    const auto listed = vocab.find(token);
    if (listed == vocab.end()) {
      place(result.text_, id, token, where);
    } else {
      require(*listed == id, ErrorKind::data, "[tokenizer] {}: token '{}': got ids {} and {}, expected one",
              where, token, listed->dump(), id);
      result.text_[size_t(id)] = token;
    }
    const size_t rank = size_t(std::ranges::find(kEosNames, token) - std::begin(kEosNames));
    if (rank < best) {
      best = rank;
      result.eos_ = id;
    }
  }
  return result;
} catch (const Json::exception& error) {
  fail(ErrorKind::data, "[tokenizer] {}: not a tokenizer.json: {}", where, error.what());
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids(text.size());
  std::ranges::transform(text, ids.begin(), [&](char c) { return id_of_byte_[uint8_t(c)]; });
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    const bool known = id >= 0 && size_t(id) < text_.size() && text_[size_t(id)];
    require(known, ErrorKind::data,
            "[tokenizer] decode: got id {}, expected one of the {} tokens of the folder", id, text_.size());
    text += *text_[size_t(id)];
  }
  return text;
}

std::string byte_tokenizer_json(int64_t vocab_size) {
  require(
      vocab_size >= 256, ErrorKind::usage,
      "[tokenizer] got a vocabulary of {}, expected at least 256 (one token per byte); choose a larger one",
      vocab_size);
  nlohmann::ordered_json vocab, added = nlohmann::ordered_json::array();
  for (size_t byte = 0; byte < 256; ++byte) vocab[byte_names()[byte]] = byte;
  if (vocab_size > 256) {
    added.push_back({{"id", 256},
                     {"content", kEosNames[0]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  // use_regex and trim_offsets do not matter without merges, but Hugging Face wants to see them.
  const nlohmann::ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const nlohmann::ordered_json root = {{"version", "1.0"},
                                       {"truncation", nullptr},
                                       {"padding", nullptr},
                                       {"added_tokens", added},
                                       {"normalizer", nullptr},
                                       {"pre_tokenizer", byte_level},
                                       {"post_processor", nullptr},
                                       {"decoder", byte_level},
                                       {"model",
                                        {{"type", "BPE"},
                                         {"dropout", nullptr},
                                         {"unk_token", nullptr},
                                         {"continuing_subword_prefix", nullptr},
                                         {"end_of_word_suffix", nullptr},
                                         {"fuse_unk", false},
                                         {"byte_fallback", false},
                                         {"vocab", vocab},
                                         {"merges", nlohmann::ordered_json::array()}}}};
  return root.dump(1) + "\n";
}

}  // namespace zeno::data
