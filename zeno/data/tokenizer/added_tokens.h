// Added tokens: texts that become one token wherever they stand, before the model sees anything. Those with
// `normalized` are looked for behind the normalizer, the others in the input itself; leftmost first, longest
// among those. Immutable; safe from any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/data/tokenizer/byte_trie.h"
#include "zeno/data/tokenizer/normalize/normalizer.h"

namespace zeno::data::tokenizer {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;             // not beside a letter or digit
  bool lstrip = false, rstrip = false;  // takes the white space beside it
  bool normalized = false;
  bool special = false;

  static AddedToken read(const JsonNode& node);
};

class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  bool any_normalized() const { return any_normalized_; }

  // Calls take(begin, end, token) for the text in order; token is null for text between matches. Without
  // `parse_special`, special tokens are text.
  using Take = std::function<void(size_t begin, size_t end, const AddedToken* token)>;
  void split_input(std::string_view text, bool parse_special, const Take& take) const {
    split(raw_, text, parse_special, take);
  }
  void split_normalized(std::string_view text, bool parse_special, const Take& take) const {
    split(normalized_, text, parse_special, take);
  }

 private:
  void split(const ByteTrie& trie, std::string_view text, bool parse_special, const Take& take) const;

  std::vector<AddedToken> tokens_;
  ByteTrie raw_, normalized_;  // values: indices of tokens_
  bool any_normalized_ = false;
};

}  // namespace zeno::data::tokenizer
