// Pre-tokenizers that only cut: Split by a text or regex, digits, punctuation, white space. Immutable; safe
// from any thread.
#pragma once

#include "zeno/data/tokenizer/pre_tokenizer.h"
#include "zeno/data/tokenizer/word_scanner.h"

namespace zeno::data::tokenizer {

// By the "type" of the node; one that is not known is refused by name.
std::unique_ptr<const PreTokenizer> make_splitter(const JsonNode& node);
std::unique_ptr<const PreTokenizer> make_word_splitter(WordStyle style);

}  // namespace zeno::data::tokenizer
