// Rounding of optimizer states to bf16 at random: up with the probability of what would be cut off, so that
// updates smaller than half a unit in the last place add up on average instead of vanishing. The random bits
// are a function of (seed, step, role, index), not of a generator's state: any cut of a shard and any device
// gives the same bits.
#pragma once

#include <bit>
#include <cstdint>

#include "zeno/base/host_device.h"
#include "zeno/base/rng.h"

namespace zeno {

enum class StateRole : uint32_t { master, m, v };

class StochasticRounding {
 public:
  ZENO_HOST_DEVICE StochasticRounding(uint64_t seed, int64_t step)
      : key_(mix64(mix64(seed) ^ uint64_t(step))) {}

  // 48 random bits for the element, 16 of which each role uses: a good part of what an update costs on a GPU.
  ZENO_HOST_DEVICE uint64_t noise(int64_t index) const {
    const uint32_t counter = uint32_t(index) ^ uint32_t(uint64_t(index) >> 32) * 0x9e3779b9u;
    const uint32_t bits = random_bits32(key_, counter);
    return uint64_t(bits * 0x9e3779b1u >> 16) << 32 | bits;
  }

  // A neighbour of `value` in bf16, as a float. inf and NaN stay.
  ZENO_HOST_DEVICE static float round(float value, uint64_t noise, StateRole role) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7f800000u) == 0x7f800000u) return value;
    const uint32_t below = uint32_t(noise >> (16 * uint32_t(role))) & 0xffffu;
    return std::bit_cast<float>((bits + below) & 0xffff0000u);
  }

 private:
  uint64_t key_;
};

}  // namespace zeno
