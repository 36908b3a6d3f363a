// The two 16-bit float formats as storage types. Arithmetic happens in float; conversion to 16 bits rounds to
// nearest even. Vector code has its own conversions, tested to give the same bits as these.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace zeno {

struct BF16 {
  uint16_t bits = 0;

  BF16() = default;
  explicit BF16(float value) {
    uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = uint16_t((u >> 16) | 0x40);  // keep NaN a (quiet) NaN
    } else {
      bits = uint16_t((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
};

struct F16 {
  uint16_t bits = 0;

  F16() = default;
  explicit F16(float value) : bits(std::bit_cast<uint16_t>(static_cast<_Float16>(value))) {}
  explicit operator float() const { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
};

static_assert(sizeof(BF16) == 2 && sizeof(F16) == 2);

}  // namespace zeno
