// A sum of doubles that does not depend on the order of its terms: an integer accumulator as wide as the
// range of double (a Kulisch accumulator, in limbs of 32 bits). Used for gradient norms and losses, so that
// both have the same bits for every sharding, bucket size and world size. Plain data: may be sent between
// ranks as bytes and merged there. The host and the GPU run the same code.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "zeno/base/host_device.h"

namespace zeno {

class ExactSum {
 public:
  static constexpr int kLimbs = 68;  // 2^-1074 .. 2^1024 and room for 2^31 carries
  static constexpr int kBias = 1088;

  // Adds a finite double exactly; a non-finite one makes the whole sum non-finite (NaN).
  ZENO_HOST_DEVICE void add(double value);
  ZENO_HOST_DEVICE void add(const ExactSum& other);
  // The sum, rounded to double once.
  ZENO_HOST_DEVICE double value() const;

  // A term as the accumulator takes it: ±mantissa · 2^(place - kBias).
  struct Term {
    uint64_t mantissa;
    uint32_t place;
    bool negative, finite;
  };
  ZENO_HOST_DEVICE static Term split(double value);

  // For kernels that add in parallel: each addition of at most 2^32 to the magnitude of a limb adds 1 to
  // `pending`.
  struct Parts {
    int64_t* limbs;
    uint32_t *pending, *nonfinite;
  };
  ZENO_HOST_DEVICE Parts parts() { return {limbs_.data(), &pending_, &nonfinite_}; }

 private:
  static constexpr uint32_t kMaxPending = 1u << 30;  // |limb| <= (pending + 1) · 2^32 stays far inside int64
  ZENO_HOST_DEVICE void normalize();
  std::array<int64_t, kLimbs> limbs_{};  // value = Σ limbs[i] · 2^(32·i − 1088)
  uint32_t pending_ = 0;                 // additions since the last carry pass
  uint32_t nonfinite_ = 0;
};

ZENO_HOST_DEVICE inline ExactSum::Term ExactSum::split(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint32_t exponent = uint32_t(bits >> 52) & 0x7ff;
  // Denormals share the place of exponent 1.
  return {.mantissa = (bits & ((uint64_t(1) << 52) - 1)) | uint64_t(exponent != 0) << 52,
          .place = exponent + (exponent == 0) + uint32_t(kBias - 1075),
          .negative = bits >> 63 != 0,
          .finite = exponent != 0x7ff};
}

// Inline: grad_scan calls it once per 64 elements and should not leave its vector loop for it.
ZENO_HOST_DEVICE inline void ExactSum::add(double value) {
  const Term term = split(value);
  if (!term.finite) [[unlikely]] {
    nonfinite_ = 1;
    return;
  }
  const uint32_t shift = term.place % 32;
  const uint64_t low = term.mantissa << shift;
  const uint64_t high = term.mantissa >> 1 >> (63 - shift);
  const int64_t sign = -int64_t(term.negative);  // 0 or -1: (x ^ sign) - sign negates
  int64_t* limb = limbs_.data() + term.place / 32;
  limb[0] += (int64_t(low & 0xffffffff) ^ sign) - sign;
  limb[1] += (int64_t(low >> 32) ^ sign) - sign;
  limb[2] += (int64_t(high) ^ sign) - sign;
  if (++pending_ >= kMaxPending) [[unlikely]]
    normalize();
}

ZENO_HOST_DEVICE inline void ExactSum::add(const ExactSum& other) {
  ExactSum tidy = other;
  tidy.normalize();
  for (int i = 0; i < kLimbs; ++i) limbs_[size_t(i)] += tidy.limbs_[size_t(i)];
  nonfinite_ |= tidy.nonfinite_;
  if (++pending_ >= kMaxPending) normalize();
}

// Carries upwards until every limb but the last is in 0 .. 2^32 - 1; the last keeps the sign.
ZENO_HOST_DEVICE inline void ExactSum::normalize() {
  int64_t carry = 0;
  for (size_t i = 0; i + 1 < kLimbs; ++i) {
    const int64_t limb = limbs_[i] + carry;
    limbs_[i] = limb & 0xffffffff;
    carry = limb >> 32;
  }
  limbs_[kLimbs - 1] += carry;
  pending_ = 0;
}

ZENO_HOST_DEVICE inline double ExactSum::value() const {
  if (nonfinite_) return std::numeric_limits<double>::quiet_NaN();
  ExactSum sum = *this;
  sum.normalize();
  const bool negative = sum.limbs_[kLimbs - 1] < 0;
  if (negative) {
    for (int64_t& limb : sum.limbs_) limb = -limb;
    sum.normalize();
  }
  int top = kLimbs - 1;
  while (top > 0 && sum.limbs_[size_t(top)] == 0) --top;
  // Three limbs hold at least 65 significant bits below the leading one or everything there is; what lies
  // under them matters only as "not exactly zero". The highest limb of the three in `high`, the others in
  // `low`.
  const auto limb = [&](int i) { return i >= 0 ? uint64_t(sum.limbs_[size_t(i)]) : 0; };
  const uint64_t high = limb(top), low = limb(top - 1) << 32 | limb(top - 2);
  bool sticky = false;
  for (int i = 0; i <= top - 3; ++i) sticky |= sum.limbs_[size_t(i)] != 0;
  if ((high | low) == 0) return 0.0;
  int drop = 0;  // 0..64: bits of the window above the 64 that are kept (std::countl_zero is 64 on the GPU)
  for (uint64_t rest = high; rest != 0; rest >>= 1) ++drop;
  const uint64_t kept = drop == 0 ? low : drop == 64 ? high : high << (64 - drop) | low >> drop;
  if (drop > 0) sticky |= (drop == 64 ? low : low << (64 - drop)) != 0;
  const uint64_t leading = kept | uint64_t(sticky);
  // Every term is a multiple of 2^-1074, so a denormal result needs no rounding and ldexp is exact.
  const double magnitude = std::ldexp(double(leading), 32 * (top - 2) - kBias + drop);
  return negative ? -magnitude : magnitude;
}

}  // namespace zeno
