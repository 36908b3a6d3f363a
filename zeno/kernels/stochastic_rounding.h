// Rounding of optimizer states to bf16 and eight bits (moment_code.h) at random: up with the probability of
// what would be cut off, so that updates smaller than half a unit in the last place add up on average instead
// of vanishing. The random bits are a function of (seed, step, role, index), not of a generator's state: any
// cut of a shard and any device gives the same bits.
#pragma once

#include <bit>
#include <cstdint>

#include "zeno/base/host_device.h"
#include "zeno/base/rng.h"

namespace zeno {

enum class StateRole : uint32_t { master, m, v };

class StochasticRounding {
 public:
  static constexpr uint32_t kHighFactor = 0x9e3779b9u;    // spreads the upper half of an index
  static constexpr uint32_t kMasterFactor = 0x9e3779b1u;  // makes other bits for masters

  ZENO_HOST_DEVICE StochasticRounding(uint64_t seed, int64_t step)
      : key_(mix64(mix64(seed) ^ uint64_t(step))) {}

  // 32 random bits for the element, shared by its states: a good part of what an update costs.
  ZENO_HOST_DEVICE uint32_t noise(int64_t index) const {
    return random_bits32(key_, uint32_t(index) ^ uint32_t(uint64_t(index) >> 32) * kHighFactor);
  }

  // `bits` of the noise for a role, at most 20. Moments read the word from its two ends: where they overlap,
  // the highest bits of one, which decide, are the lowest of the other.
  ZENO_HOST_DEVICE static constexpr uint32_t below(uint32_t noise, StateRole role, int bits) {
    if (role == StateRole::v) return noise & ((1u << bits) - 1);
    return (role == StateRole::master ? noise * kMasterFactor : noise) >> (32 - bits);
  }

  // A neighbour of `value` in bf16, as a float. inf and NaN stay.
  ZENO_HOST_DEVICE static float round(float value, uint32_t noise, StateRole role) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7f800000u) == 0x7f800000u) return value;
    return std::bit_cast<float>((bits + below(noise, role, 16)) & 0xffff0000u);
  }

  uint64_t key() const { return key_; }  // for vector code, which does the same to many

 private:
  uint64_t key_;
};

}  // namespace zeno
