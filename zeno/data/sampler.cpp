#include "zeno/data/sampler.h"

#include <bit>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/base/rng.h"

namespace zeno::data {

// A Feistel network permutes the next power of four; walking on from results beyond n (at most four steps on
// average) keeps it a bijection of 0..n-1.
uint64_t permute(uint64_t index, uint64_t n, uint64_t key) {
  constexpr uint64_t kRounds = 8;
  ensure(index < n && n <= uint64_t(1) << 62, "[sampler] got index {} of {}", index, n);
  const int half = (std::bit_width(n - 1) + 1) / 2;
  const uint64_t mask = (uint64_t(1) << half) - 1;
  do {
    uint64_t left = index >> half, right = index & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (random_bits(key, round, right) & mask);
      left = right;
      right = next;
    }
    index = (left << half) | right;
  } while (index >= n);
  return index;
}

Sampler::Sampler(int64_t sequences, int64_t per_step, uint64_t seed, bool shuffle)
    : sequences_(sequences), seed_(seed), shuffle_(shuffle) {
  ensure(sequences >= 1 && per_step >= 1, "[sampler] got {} sequences, {} per step, expected at least 1",
         sequences, per_step);
  steps_per_epoch_ = div_ceil(sequences, per_step);
  per_epoch_ = steps_per_epoch_ * per_step;
}

SamplePlace Sampler::place(int64_t sample) const { return {sample / per_epoch_, sample % per_epoch_}; }

int64_t Sampler::sequence(int64_t sample) const {
  const auto [epoch, index] = place(sample);
  if (index >= sequences_) return kEmpty;
  if (!shuffle_) return index;
  return int64_t(
      permute(uint64_t(index), uint64_t(sequences_), random_bits(seed_, 0x5a3b1e, uint64_t(epoch))));
}

}  // namespace zeno::data
