#include "zeno/data/generated.h"

#include <algorithm>
#include <span>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/rng.h"

namespace zeno::data {
namespace {

// The token after (before, last) in an alphabet of n symbols.
int64_t next_symbol(uint64_t seed, int64_t n, int64_t before, int64_t last, uint64_t bits) {
  constexpr int64_t kClasses = 8;  // the older token counts by its class only, so that there is less to learn
  const uint64_t choice = bits & 7;
  if (choice < 4) return int64_t(random_bits(seed, 1, uint64_t(last)) % uint64_t(n));
  if (choice < 7)
    return int64_t(random_bits(seed, 2 + uint64_t(before % kClasses), uint64_t(last)) % uint64_t(n));
  const double u = double(bits >> 11) * 0x1p-53;
  return int64_t(u * u * double(n));  // skewed: low symbols are more frequent
}

void generate_document(const GeneratedData& options, int64_t document, std::span<int32_t> out) {
  const int64_t symbols = options.vocab_size - (options.eos ? 1 : 0);
  const uint64_t stream = mix64(uint64_t(document) ^ 0x5eed);
  int64_t before = int64_t(random_bits(options.seed, stream, 0) % uint64_t(symbols)), last = before;
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t symbol =
        next_symbol(options.seed, symbols, before, last, random_bits(options.seed, stream, i + 1));
    before = std::exchange(last, symbol);
    out[i] = int32_t(symbol) + (options.eos && symbol >= *options.eos ? 1 : 0);
  }
  if (options.eos && !out.empty()) out.back() = *options.eos;
}

}  // namespace

std::vector<int32_t> generate_tokens(const GeneratedData& options) {
  const int64_t least = options.eos ? 3 : 2;
  require(options.vocab_size >= least, ErrorKind::usage,
          "[data] generated: got a vocabulary of {}, expected at least {}", options.vocab_size, least);
  require(options.tokens >= 1 && options.document_tokens >= 2, ErrorKind::usage,
          "[data] generated: got {} tokens in documents of {}, expected at least 1 and 2", options.tokens,
          options.document_tokens);
  require(!options.eos || (*options.eos >= 0 && *options.eos < options.vocab_size), ErrorKind::usage,
          "[data] generated: got eos id {}, expected below {}", options.eos.value_or(-1), options.vocab_size);
  std::vector<int32_t> ids(size_t(options.tokens));
  for (int64_t begin = 0; begin < options.tokens; begin += options.document_tokens) {
    const int64_t count = std::min(options.document_tokens, options.tokens - begin);
    generate_document(options, begin / options.document_tokens,
                      std::span(ids).subspan(size_t(begin), size_t(count)));
  }
  return ids;
}

}  // namespace zeno::data
