// Bounds that keep a hostile file from becoming a huge allocation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "zeno/base/json_limits.h"

namespace zeno::data::tokenizer {

constexpr int64_t kMaxId = (int64_t(1) << 22) - 1;  // more ids than any tokenizer has
constexpr int kMaxDepth = 64;                       // of objects inside objects
// The largest tokenizer.json there is has 40 MB and 2 million values.
constexpr uint64_t kMaxFileBytes = uint64_t(128) << 20;
constexpr JsonLimits kJsonLimits{
    .depth = 100, .values = 4'000'000, .nodes = 4'000'000, .keys = size_t(kMaxId) + 1};
constexpr size_t kMaxTokenBytes = 4096;  // of one token, or of what a normalizer writes at once
// Where BPE finds no border it works on the whole piece, in 44 bytes for each of its bytes.
constexpr size_t kMaxPieceBytes = size_t(8) << 20;
// What normalizers may make of a text of `bytes`: more than any language grows.
constexpr size_t max_rewritten(size_t bytes) { return 4 * bytes + (size_t(1) << 20); }
constexpr size_t kMaxAddedTokens = 1024;  // that a post-processor puts around a text
constexpr size_t kMaxPostProcessors = 64;

}  // namespace zeno::data::tokenizer
