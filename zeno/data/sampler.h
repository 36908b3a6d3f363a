// The order of training sequences as a function of (seed, epoch, index): no list in memory and no state to
// save, so the position in the data is two integers.
#pragma once

#include <cstdint>

namespace zeno::data {

// A permutation of 0..n-1 chosen by `key`; index < n <= 2^62.
uint64_t permute(uint64_t index, uint64_t n, uint64_t key);

struct SamplePlace {
  int64_t epoch = 0;
  int64_t index = 0;  // within the epoch, before shuffling
};

// Maps the endless count of places that the steps of a run have to sequences of the data. An epoch uses every
// sequence once and ends with a step: places of its last step that no sequence is left for stay empty.
class Sampler {
 public:
  static constexpr int64_t kEmpty = -1;

  // Every step has `per_step` places.
  Sampler(int64_t sequences, int64_t per_step, uint64_t seed, bool shuffle);

  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  SamplePlace place(int64_t sample) const;
  int64_t sequence(int64_t sample) const;  // or kEmpty

 private:
  int64_t sequences_;
  int64_t steps_per_epoch_;
  int64_t per_epoch_;
  uint64_t seed_;
  bool shuffle_;
};

}  // namespace zeno::data
