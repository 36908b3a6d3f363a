// Keeps what users write from becoming special tokens. A chat template mixes its own "<|im_end|>" with
// message texts, and the tokenizer cannot tell them apart: a user who writes that text would end the turn. So
// a special token that has bytes of a user, a system message or a tool is cut in two, and the tokenizer does
// not read across the cut. Const calls are safe from any thread.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/data/chat/chat_template.h"
#include "zeno/data/tokenizer.h"

namespace zeno::data {

class SpecialGuard {
 public:
  SpecialGuard() = default;
  explicit SpecialGuard(const Tokenizer& tokenizer);

  // Where the text of a chat must be cut, ascending: inside such special tokens, and where the words of
  // others touch what the model has to write.
  std::vector<size_t> cuts(const RenderedChat& chat) const;

 private:
  std::array<std::vector<std::string>, 256> by_first_byte_;  // texts of special tokens
  size_t longest_ = 0;
};

// Tokens of a text in order; none reaches over a cut.
void for_each_token_in_pieces(const Tokenizer& tokenizer, std::string_view text,
                              const std::vector<size_t>& cuts, const TakeToken& take);

}  // namespace zeno::data
