// The next token from a row of logits. Pure functions; randomness is a function of (seed, sequence,
// position), so the same prompt gives the same text again, whatever else is generated at the same time.
//
// Order, as users of transformers know it: repetition penalty, temperature, top-k, top-p, min-p. Equal logits
// rank by token id, the lower one first, so that every set is well defined.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace zeno::generate {

struct SamplingOptions {
  double temperature = 1;         // 0: always the most likely token
  int64_t top_k = 0;              // at most this many candidates; 0: all
  double top_p = 1;               // the smallest set of candidates with at least this probability
  double min_p = 0;               // candidates with at least this share of the largest probability
  double repetition_penalty = 1;  // > 1 makes tokens that were there before less likely
  uint64_t seed = 0;
};

// Throws Error(usage) for values out of range.
void check_sampling(const SamplingOptions& options);

// Divides positive logits of tokens that occur in `before` by `penalty` and multiplies negative ones.
void penalise_repetition(std::span<float> logits, std::span<const int32_t> before, double penalty);

struct Candidate {
  int32_t token = 0;
  double probability = 0;
};

// What may come next under `options` (temperature > 0), with probabilities of sum 1: the most likely first
// where top-k or top-p rank them, else in the order of ids. Error(data) when the logits are not numbers.
std::vector<Candidate> candidates(std::span<const float> logits, const SamplingOptions& options);

// The token after `before` in the sequence with this number. Changes `logits`.
int32_t pick_token(std::span<float> logits, std::span<const int32_t> before, const SamplingOptions& options,
                   uint64_t sequence);

}  // namespace zeno::generate
