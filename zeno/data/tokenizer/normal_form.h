// The Unicode normal forms of a text, with the alignment the Hugging Face library gives: a composed character
// belongs to the first of its parts, a decomposed one to the character it came from.
#pragma once

#include "zeno/data/tokenizer/normalize/aligned_text.h"

namespace zeno::data::tokenizer {

struct NormalForm {
  bool compose;     // NFC, NFKC
  bool compatible;  // NFKC, NFKD

  // False when the text is known to be in this form already.
  bool changes(std::string_view text) const;
  void apply(AlignedText& text) const;
};

}  // namespace zeno::data::tokenizer
