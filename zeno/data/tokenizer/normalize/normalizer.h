// Normalizers of tokenizer.json: what happens to the text before it is cut. Immutable; safe from any thread.
#pragma once

#include <memory>
#include <string_view>

#include "zeno/data/tokenizer/normalize/aligned_text.h"

namespace zeno::data::tokenizer {

class JsonNode;

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // False if apply() would leave the text unchanged; saves the copy.
  virtual bool changes(std::string_view text) const { return !text.empty(); }
  virtual void apply(AlignedText& text) const = 0;
};

// From the "normalizer" of the file.
std::unique_ptr<const Normalizer> make_normalizer(const JsonNode& node);

// SentencePiece's compiled character map, from its base64 text.
std::unique_ptr<const Normalizer> make_character_map(const JsonNode& node);

}  // namespace zeno::data::tokenizer
