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
  // In integers, because clang 14 (the fuzzers) has no _Float16; gives its bits.
  explicit F16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
      bits = uint16_t(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));  // keep NaN a quiet NaN
    } else if (magnitude >= 0x47800000u) {
      bits = uint16_t(sign | 0x7c00u);
    } else if (magnitude >= 0x38800000u) {
      bits = uint16_t(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1)) >> 13));
    } else {
      // Subnormal: adding 0.5 lets the float unit round at the right bit.
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      bits = uint16_t(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
    }
  }
  explicit operator float() const {
    const uint32_t sign = uint32_t(bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1fu,
                   fraction = bits & 0x3ffu;
    if (exponent == 0) {
      const float magnitude = float(fraction) * 0x1p-24f;
      return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
    }
    const uint32_t quiet = exponent == 31 && fraction != 0 ? 0x400000u : 0;
    const uint32_t wide = exponent == 31 ? 0xffu : exponent + 112;
    return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13) | quiet);
  }
};

static_assert(sizeof(BF16) == 2 && sizeof(F16) == 2);

}  // namespace zeno
