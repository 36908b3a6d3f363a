// The text of consecutive pieces of a token sequence. Pure; safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "zeno/data/tokenizer.h"

namespace zeno::data {

// `ends`: where each piece ends, ascending; the last one is ids.size(). The texts joined are decode(ids). A
// character whose bytes lie on both sides of a border belongs to the piece behind it.
std::vector<std::string> piece_texts(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                                     std::span<const size_t> ends);

}  // namespace zeno::data
