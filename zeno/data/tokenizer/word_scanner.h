// The regexes of the GPT-2, Llama-3 and Qwen2 families, written by hand: the same cuts as PCRE2 makes (a
// property test compares them), at many times its speed. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace zeno::data::tokenizer {

enum class WordStyle { gpt2, llama3, qwen2 };

// The regex of a style, and the style of a regex if it is one of these.
std::string_view word_regex(WordStyle style);
std::optional<WordStyle> word_style(std::string_view regex);

// The end of the word that starts at `at` < text.size(). Every character of a text belongs to some word.
// The text must be valid UTF-8.
size_t word_end(WordStyle style, std::string_view text, size_t at);

}  // namespace zeno::data::tokenizer
