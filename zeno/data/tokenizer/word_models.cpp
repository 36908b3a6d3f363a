// WordPiece (the longest known beginning, then the longest known continuation, …) and WordLevel (whole
// words).
#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/data/tokenizer/byte_trie.h"
#include "zeno/data/tokenizer/json_node.h"
#include "zeno/data/tokenizer/limits.h"
#include "zeno/data/tokenizer/model.h"

namespace zeno::data::tokenizer {
namespace {

int32_t find_unknown(const JsonNode& node, const Vocabulary& vocabulary, const char* otherwise) {
  const std::string text = node.string_or("unk_token", otherwise);
  const auto found = vocabulary.ids.find(text);
  if (found == vocabulary.ids.end())
    node.refuse(fmt::format("no token '{}'", text), "the unknown token in the vocabulary");
  return found->second;
}

class WordPiece final : public Model {
 public:
  WordPiece(const JsonNode& node, const Vocabulary& vocabulary)
      : unknown_(find_unknown(node, vocabulary, "[UNK]")), longest_word_(100) {
    if (const auto longest = node.find("max_input_chars_per_word")) {
      longest_word_ = size_t(longest->integer(0, INT32_MAX));
    }
    const std::string prefix = node.string_or("continuing_subword_prefix", "##");
    for (const auto& [text, id] : vocabulary.ids) {
      if (vocabulary.hidden.contains(id)) continue;
      if (text.size() > kMaxMatchedBytes)
        node.refuse(fmt::format("a token of {} bytes", text.size()),
                    fmt::format("at most {}", kMaxMatchedBytes));
      if (!text.empty()) beginnings_.add(text, id);
      if (text.size() > prefix.size() && text.starts_with(prefix))
        continuations_.add(text.substr(prefix.size()), id);
    }
  }

  void encode(std::string_view piece, Workspace&, std::vector<Token>& out) const override {
    const size_t first = out.size();
    const auto unknown = [&] {
      out.resize(first);
      out.push_back({unknown_, 0, uint32_t(piece.size())});
    };
    const auto starts_char = [](char c) { return (uint8_t(c) & 0xc0) != 0x80; };
    if (size_t(std::ranges::count_if(piece, starts_char)) > longest_word_) return unknown();
    for (size_t at = 0; at < piece.size();) {
      const auto match = (at == 0 ? beginnings_ : continuations_).longest(piece, at);
      if (!match) return unknown();
      out.push_back({match->value, uint32_t(at), uint32_t(match->end)});
      at = match->end;
    }
  }

 private:
  int32_t unknown_;
  size_t longest_word_;
  ByteTrie beginnings_, continuations_;
};

class WordLevel final : public Model {
 public:
  WordLevel(const JsonNode& node, const Vocabulary& vocabulary)
      : vocabulary_(vocabulary), unknown_text_(node.string_or("unk_token", "<unk>")) {
    const auto found = vocabulary.ids.find(unknown_text_);
    if (found != vocabulary.ids.end()) unknown_ = found->second;
  }

  void encode(std::string_view piece, Workspace&, std::vector<Token>& out) const override {
    const std::optional<int32_t> found = vocabulary_.find(std::string(piece));
    require(found || unknown_, ErrorKind::data,
            "[tokenizer] got '{}', which is not in the vocabulary, and no token '{}' for it", piece,
            unknown_text_);
    out.push_back({found ? *found : *unknown_, 0, uint32_t(piece.size())});
  }

 private:
  Vocabulary vocabulary_;
  std::string unknown_text_;
  std::optional<int32_t> unknown_;
};

}  // namespace

std::unique_ptr<const Model> make_word_piece(const JsonNode& node, const Vocabulary& vocabulary) {
  return std::make_unique<WordPiece>(node, vocabulary);
}

std::unique_ptr<const Model> make_word_level(const JsonNode& node, const Vocabulary& vocabulary) {
  return std::make_unique<WordLevel>(node, vocabulary);
}

}  // namespace zeno::data::tokenizer
