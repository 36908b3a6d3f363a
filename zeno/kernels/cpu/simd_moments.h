// Stochastic rounding of optimizer states on vectors: the bits of stochastic_rounding.h and moment_code.h.
// Included once per SIMD target, inside a file that uses hwy/foreach_target.h.
#if defined(ZENO_KERNELS_CPU_SIMD_MOMENTS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZENO_KERNELS_CPU_SIMD_MOMENTS_H_
#undef ZENO_KERNELS_CPU_SIMD_MOMENTS_H_
#else
#define ZENO_KERNELS_CPU_SIMD_MOMENTS_H_
#endif

#include <algorithm>
#include <limits>

#include "zeno/kernels/cpu/simd_lanes.h"
#include "zeno/kernels/cpu/simd_random.h"
#include "zeno/kernels/moment_cells.h"
#include "zeno/kernels/moment_code.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

using BitsTag = U32Tag<FloatTag>;
using Bits = hn::Vec<BitsTag>;
using IntTag = hn::RebindToSigned<FloatTag>;
using Floats = hn::Vec<FloatTag>;

// StochasticRounding::noise of the elements of a cell, the first of which has this index.
class CellNoise {
 public:
  HWY_INLINE CellNoise(const StochasticRounding& rounding, int64_t index) : low_(uint32_t(index)) {
    const uint32_t high = uint32_t(uint64_t(index) >> 32);
    key_ = rounding.key() ^ high * StochasticRounding::kHighFactor;
    // Inside a cell the lower half of the index may begin again; then the upper one has another factor.
    wraps_ = low_ > ~uint32_t(kMomentCell);
    next_key_ = rounding.key() ^ (high + 1) * StochasticRounding::kHighFactor;
  }
  // Of elements [k, k + lanes).
  HWY_INLINE Bits at(int64_t k) const {
    const BitsTag du;
    const auto lows = counters_from(du, low_ + uint32_t(k));
    const auto noise = random_bits32(du, key_, lows);
    if (HWY_LIKELY(!wraps_)) return noise;
    return hn::IfThenElse(hn::Lt(lows, hn::Set(du, low_)), random_bits32(du, next_key_, lows), noise);
  }

 private:
  uint64_t key_, next_key_;
  uint32_t low_;
  bool wraps_;
};

// StochasticRounding::below.
template <StateRole kRole, int kBits>
HWY_INLINE Bits below(Bits noise) {
  const BitsTag du;
  if constexpr (kRole == StateRole::v) {
    return hn::And(noise, hn::Set(du, (uint32_t(1) << kBits) - 1));
  } else if constexpr (kRole == StateRole::m) {
    return hn::ShiftRight<32 - kBits>(noise);
  } else {
    return hn::ShiftRight<32 - kBits>(hn::Mul(noise, hn::Set(du, StochasticRounding::kMasterFactor)));
  }
}

// The 16 bits of StochasticRounding::round. NaN that comes out of arithmetic has the highest bit of its
// mantissa set and keeps it.
template <StateRole kRole>
HWY_INLINE Bits rounded_to_bf16(Floats x, Bits noise) {
  const BitsTag du;
  const auto bits = hn::BitCast(du, x), infinity = hn::Set(du, 0x7f800000u);
  const auto up = hn::Add(bits, below<kRole, 16>(noise));
  return hn::ShiftRight<16>(hn::IfThenElse(hn::Eq(hn::And(bits, infinity), infinity), bits, up));
}

// Whether a code of the cell lacks the leading one. Few cells have such: it pays to know.
template <StateRole kRole>
HWY_INLINE bool has_small(const MomentCell& cell) {
  const hn::ScalableTag<uint8_t> d8;
  const auto exponents = hn::Set(d8, uint8_t(MomentCode<kRole>::kMagnitude & ~7u));
  auto least = exponents;
  for (int64_t i = 0; i < kMomentCell; i += int64_t(hn::Lanes(d8))) {
    least = hn::Min(least, hn::And(hn::LoadU(d8, cell.codes + i), exponents));
  }
  return !hn::AllFalse(d8, hn::Eq(least, hn::Zero(d8)));
}

// The codes of neighbouring elements of a cell.
template <StateRole kRole>
HWY_INLINE Floats decoded(const uint8_t* code, uint32_t exponent, bool some_small) {
  using Code = MomentCode<kRole>;
  const FloatTag d;
  const BitsTag du;
  const IntTag di;
  const auto codes = hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint8_t, FloatTag>(), code));
  const auto magnitudes = hn::And(codes, hn::Set(du, Code::kMagnitude));
  auto values =
      hn::BitCast(d, hn::Add(hn::ShiftLeft<Code::kCut>(magnitudes), hn::Set(du, Code::offset(exponent))));
  if (some_small) {
    // A code k without the leading one was given it: that is 4 + k / 2 steps, exactly.
    const auto small = hn::MulSub(values, hn::Set(d, 2.0f), hn::Set(d, 8 * Code::step_size(exponent)));
    const auto is_small = hn::Lt(hn::BitCast(di, magnitudes), hn::Set(di, int32_t(Code::kLeading)));
    values = hn::IfThenElse(hn::RebindMask(d, is_small), small, values);
  }
  if constexpr (!Code::kSigned) return values;
  return hn::Or(values, hn::BitCast(d, hn::ShiftLeft<24>(hn::Xor(codes, magnitudes))));
}

// The lowest bytes are codes with a leading one, given what was rounded less the offset.
template <StateRole kRole>
HWY_INLINE Bits codes_of_leading(Floats x, Bits leading) {
  const BitsTag du;
  const auto code = hn::ShiftRight<MomentCode<kRole>::kCut>(leading);
  if constexpr (kRole == StateRole::v) return code;
  return hn::Or(code, hn::And(hn::ShiftRight<24>(hn::BitCast(du, x)), hn::Set(du, 0x80u)));
}

// The lowest bytes are codes of any numbers.
template <StateRole kRole>
HWY_INLINE Bits codes_of_any(Floats x, Bits leading, Bits below, uint32_t exponent) {
  using Code = MomentCode<kRole>;
  const FloatTag d;
  const BitsTag du;
  const IntTag di;
  // Both ways to count are shifted by the bits of 2.0, which are above the lowest byte. A number with a
  // leading one has at least 8 steps, and its code is at least 8: so the larger of the two is right.
  const auto steps = hn::MulAdd(hn::Abs(x), hn::Set(d, Code::steps_scale(exponent)), hn::Set(d, 2.0f));
  const auto small = hn::Min(hn::BitCast(di, hn::Add(hn::BitCast(du, steps), below)),
                             hn::Set(di, int32_t(Code::kTwo + (Code::kLeading << Code::kCut))));
  auto larger = hn::Max(small, hn::BitCast(di, hn::Add(leading, hn::Set(du, Code::kTwo))));
  if constexpr (!Code::kSigned) {  // zero stays zero, all others have a code
    const auto none = hn::Eq(hn::Abs(x), hn::Zero(d));
    const auto least = hn::Set(di, int32_t(Code::kTwo + (1u << Code::kCut)));
    larger = hn::IfThenElse(hn::RebindMask(di, none), larger, hn::Max(larger, least));
  }
  return codes_of_leading<kRole>(x, hn::BitCast(du, larger));
}

// All of a cell. `noise` is StochasticRounding's, or null: to the nearest.
template <StateRole kRole>
HWY_INLINE void encode_cell(const float* HWY_RESTRICT x, const uint32_t* HWY_RESTRICT noise,
                            MomentCell& cell) {
  using Code = MomentCode<kRole>;
  const FloatTag d;
  const BitsTag du;
  const IntTag di;
  const int64_t n = int64_t(hn::Lanes(d));
  const auto decide = [&](int64_t i) HWY_ATTR {
    return noise ? below<kRole, Code::kCut>(hn::Load(du, noise + i))
                 : hn::Set(du, uint32_t(1) << (Code::kCut - 1));
  };
  HWY_ALIGN uint32_t rounded[kMomentCell];
  auto most = hn::Zero(du);
  for (int64_t i = 0; i < kMomentCell; i += n) {
    const auto up = hn::Add(hn::BitCast(du, hn::Abs(hn::Load(d, x + i))), decide(i));
    hn::Store(up, du, rounded + i);
    most = hn::Max(most, up);
  }
  uint32_t largest = hn::GetLane(hn::MaxOfLanes(du, most));
  if (HWY_UNLIKELY(largest > Code::kLargest)) {
    for (uint32_t& up : rounded) up = std::min(up, Code::kLargest);
    largest = Code::kLargest;
  }
  const uint32_t exponent = Code::cell_exponent(largest);
  cell.exponent = exponent;
  const auto offset = hn::Set(du, Code::offset(exponent));
  const hn::Rebind<uint8_t, FloatTag> d8;
  auto least = hn::Set(di, std::numeric_limits<int32_t>::max());
  for (int64_t i = 0; i < kMomentCell; i += n) {
    const auto leading = hn::Sub(hn::Load(du, rounded + i), offset);
    least = hn::Min(least, hn::BitCast(di, leading));
    hn::StoreU(hn::TruncateTo(d8, codes_of_leading<kRole>(hn::Load(d, x + i), leading)), d8, cell.codes + i);
  }
  const auto small = hn::Lt(least, hn::Set(di, int32_t(Code::kLeading << Code::kCut)));
  if (HWY_LIKELY(hn::AllFalse(di, small))) return;
  for (int64_t i = 0; i < kMomentCell; i += n) {
    const auto leading = hn::Sub(hn::Load(du, rounded + i), offset);
    const auto codes = codes_of_any<kRole>(hn::Load(d, x + i), leading, decide(i), exponent);
    hn::StoreU(hn::TruncateTo(d8, codes), d8, cell.codes + i);
  }
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per-target include guard
