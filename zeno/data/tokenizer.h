// The byte-level tokenizer of a model folder: one token per byte, as `zeno init` writes it into
// tokenizer.json. Tokenizers with merges are refused by name, never approximated. A value; safe to share
// between threads.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/base/file.h"

namespace zeno::data {

class Tokenizer {
 public:
  // Reads <folder>/tokenizer.json.
  static Tokenizer open(const Path& folder);
  // `where` names the text in error messages.
  static Tokenizer parse(std::string_view json, std::string_view where);

  // One id per byte. Text never produces a special token, whatever it says.
  std::vector<int32_t> encode(std::string_view text) const;
  // Special tokens come back as their own text; an id the tokenizer does not have is an Error(data).
  std::string decode(std::span<const int32_t> ids) const;

  // The token that ends a document, if the folder has one.
  std::optional<int32_t> eos() const { return eos_; }
  int64_t vocab_size() const { return int64_t(text_.size()); }  // largest id + 1

 private:
  std::array<int32_t, 256> id_of_byte_{};
  std::vector<std::optional<std::string>> text_;  // by id: the bytes it stands for
  std::optional<int32_t> eos_;
};

// tokenizer.json of a byte-level tokenizer for a model with `vocab_size` >= 256 tokens: ids 0..255 are the
// bytes, 256 is <|endoftext|> when there is room for it.
std::string byte_tokenizer_json(int64_t vocab_size);

}  // namespace zeno::data
