// The tokens of pieces seen before: a direct-mapped table of fixed size, one cache line per piece. Long
// pieces and those of many tokens are not kept. Owned by one thread at a time.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "zeno/data/tokenizer/model.h"

namespace zeno::data::tokenizer {

class WordCache {
 public:
  static constexpr size_t kMaxBytes = 20, kMaxTokens = 7;
  static bool fits(std::string_view piece) { return piece.size() <= kMaxBytes; }

  struct alignas(64) Entry {
    uint8_t bytes = 0, tokens = 0;  // bytes 0: free
    uint8_t begin[kMaxTokens], end[kMaxTokens];
    char text[kMaxBytes];
    int32_t ids[kMaxTokens];
  };
  static_assert(sizeof(Entry) == 64);

  WordCache() : entries_(kEntries) {}

  // Where the piece is or belongs. It must fit.
  Entry& entry(std::string_view piece) {
    return entries_[XXH3_64bits(piece.data(), piece.size()) % kEntries];
  }
  static bool holds(const Entry& entry, std::string_view piece) {
    return entry.bytes == piece.size() && std::memcmp(entry.text, piece.data(), piece.size()) == 0;
  }
  static void put(Entry& entry, std::string_view piece, const std::vector<Token>& tokens) {
    if (tokens.size() > kMaxTokens) return;
    entry.bytes = uint8_t(piece.size());
    entry.tokens = uint8_t(tokens.size());
    std::memcpy(entry.text, piece.data(), piece.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      entry.ids[i] = tokens[i].id;
      entry.begin[i] = uint8_t(tokens[i].begin);
      entry.end[i] = uint8_t(tokens[i].end);
    }
  }

 private:
  static constexpr size_t kEntries = size_t(1) << 15;  // 2 MB
  std::vector<Entry> entries_;
};

}  // namespace zeno::data::tokenizer
