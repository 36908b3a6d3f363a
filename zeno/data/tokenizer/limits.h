// Bounds that keep a hostile file from becoming a huge allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "zeno/base/error.h"
#include "zeno/base/json_limits.h"

namespace zeno::data::tokenizer {

constexpr int64_t kMaxId = (int64_t(1) << 22) - 1;  // more ids than any tokenizer has
constexpr int kMaxDepth = 64;                       // of objects inside objects
// The largest tokenizer.json there is has 40 MB and 2 million values.
constexpr uint64_t kMaxFileBytes = uint64_t(128) << 20;
constexpr JsonLimits kJsonLimits{
    .depth = 100, .values = 4'000'000, .nodes = 4'000'000, .keys = size_t(kMaxId) + 1};
constexpr size_t kMaxTokenBytes = 4096;  // of one token, or of what a normalizer writes at once
// Of a token that is looked for at each place of a text: each place may cost as many steps. The longest real
// ones are a few hundred bytes long.
constexpr size_t kMaxMatchedBytes = 512;
// BPE takes up to 44 bytes for each byte of a piece, unigram models 24.
constexpr size_t kMaxPieceBytes = size_t(8) << 20;
inline void check_piece(std::string_view piece) {
  require(piece.size() <= kMaxPieceBytes, ErrorKind::data,
          "[tokenizer] got {} bytes without a word boundary, expected at most {}; split the text",
          piece.size(), kMaxPieceBytes);
}
// By how much normalizers and pre-tokenizers, all together, may lengthen a text: more than any language
// grows.
constexpr size_t max_growth(size_t bytes) { return 4 * bytes + (size_t(1) << 20); }
// In a whole file, however it nests them.
constexpr size_t kMaxSteps = 64;          // of normalizers, of pre-tokenizers and of post-processors
constexpr size_t kMaxAddedTokens = 1024;  // that post-processors put around a text

}  // namespace zeno::data::tokenizer
