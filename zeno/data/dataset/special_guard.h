// Keeps what users write from becoming special tokens. A chat template mixes its own "<|im_end|>" with
// message texts, and the tokenizer cannot tell them apart afterwards: a user who writes that text would end
// the turn. So such texts get an invisible mark before rendering; afterwards the mark is removed and the
// tokenizer is not allowed to read across the place. Const calls are safe from any
// thread.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/data/text_span.h"
#include "zeno/data/tokenizer.h"

namespace zeno::data {

// A rendered chat; no token may reach over a cut.
struct GuardedChat {
  std::string text;
  std::vector<TextSpan> assistant;
  std::vector<size_t> cuts;  // ascending
};

class SpecialGuard {
 public:
  SpecialGuard() = default;
  explicit SpecialGuard(const Tokenizer& tokenizer);

  // Marks special tokens in the contents of all messages but the assistant's, which is what the model shall
  // write, special tokens included. True: there was one.
  bool protect(nlohmann::ordered_json& messages) const;
  // Takes the marks out of a rendered chat.
  static GuardedChat remove(std::string_view text, const std::vector<TextSpan>& assistant);

 private:
  bool protect_text(std::string& text) const;
  std::array<std::vector<std::string>, 256> by_first_byte_;  // texts of special tokens
};

// Tokens of a chat whose marks are out: special tokens across a cut stay text.
Encoding encode_guarded(const Tokenizer& tokenizer, const GuardedChat& chat);

}  // namespace zeno::data
