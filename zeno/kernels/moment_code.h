// The codes of moment_cells.h, one element at a time: what vector code and GPUs do too.
//
// A code is a float with 3 bits of mantissa: for m a sign and 4 bits of exponent, for v 5 bits of exponent
// and no sign. Its largest exponent is that of the cell, its smallest is for numbers without the leading one,
// as in IEEE. With 2^E the power of two at or below the largest magnitude, m reaches down to 2^(E-17) and v
// to 2^(E-33): the same distance, since v is a square.
//
// Rounding is stochastic, up with the probability of the part that is cut off, in two stages. First every
// value is rounded to 3 bits as if it had all exponents; the largest of the results has the exponent of the
// cell. So a largest value that rounds up to the next power of two takes the cell with it, and nothing
// saturates. Then values too small for a leading one are rounded to multiples of the smallest step instead.
//
// A positive v never becomes zero: it is the smallest step at least. Else m / (sqrt(v) + eps) would explode
// where v is rounded off and m is not. So v is at most halved by rounding, the smallest m over the root of
// the smallest v is no more than the largest over the root of the largest, and steps stay in proportion to
// those of exact states. The price is a smaller step where v is below 2^-33 of its largest neighbour.
//
// Inf and NaN keep being one or the other; they make their neighbours coarse.
#pragma once

#include <bit>
#include <cstdint>

#include "zeno/base/host_device.h"
#include "zeno/kernels/stochastic_rounding.h"

namespace zeno {

template <StateRole kRole>  // m or v
struct MomentCode {
  static constexpr bool kSigned = kRole != StateRole::v;
  static constexpr uint32_t kTop = kSigned ? 15 : 31;  // largest exponent of a code
  static constexpr uint32_t kLeading = 8;              // codes from here on have the leading one
  static constexpr uint32_t kMagnitude = kSigned ? 0x7f : 0xff;
  static constexpr int kCut = 20;  // bits of fp32's mantissa that are cut off
  // fp32's exponent for a cell with exponent 0: its smallest step is a normal number then. 2^-92.
  static constexpr uint32_t kLeast = 35;
  static constexpr uint32_t kLargest = 0x7fffffffu;  // a NaN, where others would carry into the sign
  static constexpr uint32_t kTwo = 0x40000000u;      // bits of 2.0

  // fp32's exponent of the smallest step.
  ZENO_HOST_DEVICE static constexpr uint32_t step(uint32_t exponent) { return exponent + kLeast - kTop - 2; }
  // What the bits of an fp32 number lose to become a code shifted up by kCut.
  ZENO_HOST_DEVICE static constexpr uint32_t offset(uint32_t exponent) { return (step(exponent) + 2) << 23; }
  ZENO_HOST_DEVICE static constexpr float step_size(uint32_t exponent) {
    return std::bit_cast<float>(step(exponent) << 23);
  }
  // 1 / (4 · step): added to 2, as many steps as a number has, with kCut bits behind the point, are the
  // lower bits of the sum.
  ZENO_HOST_DEVICE static constexpr float steps_scale(uint32_t exponent) {
    return std::bit_cast<float>((252 - step(exponent)) << 23);
  }

  // The bits that decide, of StochasticRounding's noise.
  ZENO_HOST_DEVICE static constexpr uint32_t below(uint32_t noise) {
    return StochasticRounding::below(noise, kRole, kCut);
  }
  // The first stage; what is below the code is still there. `magnitude` is the bits without the sign.
  ZENO_HOST_DEVICE static constexpr uint32_t rounded(uint32_t magnitude, uint32_t below) {
    return magnitude + below < kLargest ? magnitude + below : kLargest;
  }
  // Of the cell, by the largest result of the first stage.
  ZENO_HOST_DEVICE static constexpr uint32_t cell_exponent(uint32_t largest) {
    return largest >> 23 > kLeast ? (largest >> 23) - kLeast : 0;
  }

  ZENO_HOST_DEVICE static uint8_t encode(float value, uint32_t below, uint32_t exponent) {
    const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
    uint32_t code;
    if (magnitude >= offset(exponent) + (kLeading << kCut)) {
      code = (rounded(magnitude, below) - offset(exponent)) >> kCut;
    } else {
      const float steps = std::bit_cast<float>(magnitude) * steps_scale(exponent) + 2.0f;
      code = (std::bit_cast<uint32_t>(steps) - kTwo + below) >> kCut;
    }
    if (kSigned) return uint8_t(code | (bits >> 31) << 7);
    return uint8_t(code == 0 && magnitude != 0 ? 1 : code);
  }

  ZENO_HOST_DEVICE static float decode(uint8_t code, uint32_t exponent) {
    const uint32_t magnitude = code & kMagnitude;
    const float value = magnitude >= kLeading ? std::bit_cast<float>((magnitude << kCut) + offset(exponent))
                                              : float(magnitude) * step_size(exponent);
    return kSigned && code >> 7 ? -value : value;
  }
};

}  // namespace zeno
