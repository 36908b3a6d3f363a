// A sum of doubles that does not depend on the order of its terms: an integer accumulator as wide as the
// range of double (a Kulisch accumulator, in limbs of 32 bits). Used for gradient norms and losses, so that
// both have the same bits for every sharding, bucket size and world size. Plain data: may be sent between
// ranks as bytes and merged there.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace zeno {

class ExactSum {
 public:
  // Adds a finite double exactly; a non-finite one makes the whole sum non-finite (NaN).
  void add(double value);
  void add(const ExactSum& other);
  // The sum, rounded to double once.
  double value() const;

 private:
  static constexpr int kLimbs = 68;  // 2^-1074 .. 2^1024 and room for 2^31 carries
  static constexpr int kBias = 1088;
  static constexpr uint32_t kMaxPending = 1u << 30;  // |limb| <= (pending + 1) · 2^32 stays far inside int64
  void normalize();
  std::array<int64_t, kLimbs> limbs_{};  // value = Σ limbs[i] · 2^(32·i − 1088)
  uint32_t pending_ = 0;                 // additions since the last carry pass
  uint32_t nonfinite_ = 0;
};

// Inline: grad_scan calls it once per 64 elements and should not leave its vector loop for it.
inline void ExactSum::add(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint32_t exponent = uint32_t(bits >> 52) & 0x7ff;
  if (exponent == 0x7ff) [[unlikely]] {
    nonfinite_ = 1;
    return;
  }
  // value = ±mantissa · 2^(place - 1088); denormals share the place of exponent 1.
  const uint64_t mantissa = (bits & ((uint64_t(1) << 52) - 1)) | uint64_t(exponent != 0) << 52;
  const uint32_t place = exponent + (exponent == 0) + uint32_t(kBias - 1075);
  const uint32_t shift = place % 32;
  const uint64_t low = mantissa << shift;
  const uint64_t high = mantissa >> 1 >> (63 - shift);
  const int64_t sign = int64_t(bits) >> 63;  // 0 or -1: (x ^ sign) - sign negates
  int64_t* limb = limbs_.data() + place / 32;
  limb[0] += (int64_t(low & 0xffffffff) ^ sign) - sign;
  limb[1] += (int64_t(low >> 32) ^ sign) - sign;
  limb[2] += (int64_t(high) ^ sign) - sign;
  if (++pending_ >= kMaxPending) [[unlikely]]
    normalize();
}

}  // namespace zeno
