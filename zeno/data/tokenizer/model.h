// Models of tokenizer.json: a piece of text → tokens. A model is immutable and safe from any thread; its
// working memory is in a Workspace, which one thread uses at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace zeno::data::tokenizer {

class JsonNode;

// A token and the bytes of the piece it represents.
struct Token {
  int32_t id;
  uint32_t begin, end;
};

// A BPE token that may still merge with the one after it.
struct Symbol {
  int32_t id;
  uint32_t begin, end;
  int32_t previous, next;  // -1: none
  uint32_t rank;           // of the merge with the next one
};

// The best way to read a text up to some byte.
struct UnigramNode {
  double score;
  int32_t id;
  uint32_t begin;
  bool reached;
};

struct Workspace {
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;
  std::vector<UnigramNode> nodes;
  std::vector<Token> tokens;

  size_t bytes() const {
    return symbols.capacity() * sizeof(Symbol) + heap.capacity() * sizeof(uint64_t) +
           nodes.capacity() * sizeof(UnigramNode) + tokens.capacity() * sizeof(Token);
  }
};

// Texts and ids of a vocabulary, as the file lists them.
struct Vocabulary {
  std::unordered_map<std::string, int32_t> ids;
  // Tokens that text must never produce, by id (the model's own unknown token excepted).
  std::unordered_set<int32_t> hidden;

  static Vocabulary read(const JsonNode& node);  // an object of text → id
  std::optional<int32_t> find(const std::string& text) const;
};

class Model {
 public:
  virtual ~Model() = default;
  // Longer pieces may be cut anywhere, into parts of at most this many bytes, with the same tokens.
  virtual size_t longest_piece() const { return SIZE_MAX; }
  // Appends the tokens of one piece, which is not empty and below 4 GB.
  virtual void encode(std::string_view piece, Workspace& work, std::vector<Token>& out) const = 0;
};

// What a byte-pair model is, whichever files it comes from.
struct BpeOptions {
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  std::string unknown, continuing_prefix, word_suffix;      // empty: none
  bool fuse_unknown = false, byte_fallback = false, ignore_merges = false;

  static BpeOptions read(const JsonNode& node);
  // Whether the model can work on bytes instead of GPT-2's names for them.
  bool takes_bytes() const { return !byte_fallback && continuing_prefix.empty() && word_suffix.empty(); }
};

// `raw_bytes`: the vocabulary is in GPT-2's names for bytes, the pieces are bytes.
std::unique_ptr<const Model> make_bpe(const Vocabulary& vocabulary, const BpeOptions& options, bool raw_bytes,
                                      const std::string& where);
// Whether no token of the model reaches across a `mark` that follows something else.
bool splits_at_mark(const Vocabulary& vocabulary, const BpeOptions& options, std::string_view mark);

std::unique_ptr<const Model> make_unigram(const JsonNode& node, const Vocabulary& vocabulary);
// The texts of a unigram model in the order of their ids.
Vocabulary read_unigram_vocabulary(const JsonNode& node);

std::unique_ptr<const Model> make_word_piece(const JsonNode& node, const Vocabulary& vocabulary);
std::unique_ptr<const Model> make_word_level(const JsonNode& node, const Vocabulary& vocabulary);

}  // namespace zeno::data::tokenizer
