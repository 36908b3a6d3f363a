#include "zeno/kernels/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace zeno {
namespace {

__extension__ using Uint128 = unsigned __int128;

}  // namespace

void ExactSum::add(const ExactSum& other) {
  ExactSum tidy = other;
  tidy.normalize();
  for (int i = 0; i < kLimbs; ++i) limbs_[i] += tidy.limbs_[i];
  nonfinite_ |= tidy.nonfinite_;
  if (++pending_ >= kMaxPending) normalize();
}

// Carries upwards until every limb but the last is in 0 .. 2^32 - 1; the last keeps the sign.
void ExactSum::normalize() {
  int64_t carry = 0;
  for (int i = 0; i + 1 < kLimbs; ++i) {
    const int64_t limb = limbs_[i] + carry;
    limbs_[i] = limb & 0xffffffff;
    carry = limb >> 32;
  }
  limbs_[kLimbs - 1] += carry;
  pending_ = 0;
}

double ExactSum::value() const {
  if (nonfinite_) return std::numeric_limits<double>::quiet_NaN();
  ExactSum sum = *this;
  sum.normalize();
  const bool negative = sum.limbs_[kLimbs - 1] < 0;
  if (negative) {
    for (int64_t& limb : sum.limbs_) limb = -limb;
    sum.normalize();
  }
  int top = kLimbs - 1;
  while (top > 0 && sum.limbs_[top] == 0) --top;
  // Three limbs hold at least 65 significant bits below the leading one or everything there is; what lies
  // under them matters only as "not exactly zero".
  Uint128 window = 0;
  for (int i = top; i > top - 3; --i) window = window << 32 | Uint128(i >= 0 ? uint64_t(sum.limbs_[i]) : 0);
  bool sticky = false;
  for (int i = 0; i <= top - 3; ++i) sticky |= sum.limbs_[i] != 0;
  if (window == 0) return 0.0;
  const int width = 128 - (window >> 64 ? std::countl_zero(uint64_t(window >> 64))
                                        : 64 + std::countl_zero(uint64_t(window)));
  const int drop = width > 64 ? width - 64 : 0;
  sticky |= (window & ((Uint128(1) << drop) - 1)) != 0;
  const uint64_t leading = uint64_t(window >> drop) | uint64_t(sticky);
  // Every term is a multiple of 2^-1074, so a denormal result needs no rounding and ldexp is exact.
  const double magnitude = std::ldexp(double(leading), 32 * (top - 2) - kBias + drop);
  return negative ? -magnitude : magnitude;
}

}  // namespace zeno
