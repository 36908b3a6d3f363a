// What a run trains on: one stream of tokens cut into documents. A document is a span of the stream and
// includes the eos token that ends it, where there is one.
//
// Owns the tokens (text, generated) or the mappings of token files. Immutable after construction: share it
// between threads and ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/data/token_file.h"
#include "zeno/data/tokenizer.h"

namespace zeno::data {

// A sequence to learn from without any data: a noisy Markov chain of order 2, a function of (seed, document,
// position). Half of the tokens follow from the one before, three eighths from the two before, the rest is
// noise.
struct GeneratedData {
  int64_t vocab_size = 0;
  int64_t tokens = 0;
  int64_t document_tokens = 512;  // eos included
  uint64_t seed = 0;
  std::optional<int32_t> eos;
};

class TokenSource {
 public:
  // Token files (by their magic) and plain text (one document per file), in the order given. `tokenizer` may
  // be null when there is no text. Every id is checked against the model's `vocab_size`.
  static TokenSource open(std::span<const Path> paths, int64_t vocab_size, const Tokenizer* tokenizer);
  static TokenSource generated(const GeneratedData& options);

  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return int64_t(starts_.size()); }
  // Where each document begins in the stream: ascending, the first at 0.
  std::span<const int64_t> document_starts() const { return starts_; }
  // Tokens begin .. begin + out.size() of the stream.
  void copy(int64_t begin, std::span<int32_t> out) const;
  // Bytes of host memory this object holds (mapped files not counted).
  size_t host_bytes() const;

 private:
  struct Part {
    int64_t begin = 0, count = 0;
    std::variant<std::vector<int32_t>, TokenFile> tokens;
  };
  void add_token_file(const Path& path, int64_t vocab_size);
  void add_text_file(const Path& path, int64_t vocab_size, const Tokenizer* tokenizer);

  int64_t tokens_ = 0;
  std::vector<int64_t> starts_;
  std::vector<Part> parts_;
};

}  // namespace zeno::data
