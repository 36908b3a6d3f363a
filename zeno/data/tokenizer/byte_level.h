// GPT-2's table of bytes as printable characters: vocabularies of byte-level tokenizers are written in it.
// Pure functions.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace zeno::data::tokenizer {

// The character (as UTF-8) that represents each byte: printable Latin-1 for itself, the others from U+0100
// on.
const std::array<std::string, 256>& byte_names();
// The bytes that a text in that alphabet represents; nothing when it has other characters.
std::optional<std::string> bytes_of_names(std::string_view text);

}  // namespace zeno::data::tokenizer
