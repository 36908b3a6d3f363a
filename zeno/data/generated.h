// A sequence to learn from without any data: a noisy Markov chain of order 2, a function of (seed, document,
// position). Half of the tokens follow from the one before, three eighths from the two before, the rest is
// noise.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace zeno::data {

struct GeneratedData {
  int64_t vocab_size = 0;
  int64_t tokens = 0;
  int64_t document_tokens = 512;  // eos included
  uint64_t seed = 0;
  std::optional<int32_t> eos;
};

// Documents of `document_tokens` one after the other; the last may be shorter.
std::vector<int32_t> generate_tokens(const GeneratedData& options);

}  // namespace zeno::data
