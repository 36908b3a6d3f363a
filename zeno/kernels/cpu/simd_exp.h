// exp and sigmoid of fp32 lanes, about 1-2 ulp. Included once per SIMD target like simd_lanes.h.
#if defined(ZENO_KERNELS_CPU_SIMD_EXP_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZENO_KERNELS_CPU_SIMD_EXP_H_
#undef ZENO_KERNELS_CPU_SIMD_EXP_H_
#else
#define ZENO_KERNELS_CPU_SIMD_EXP_H_
#endif

#include <hwy/highway.h>

#include <limits>

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Overflows to inf, gives 0 where the result would be denormal, keeps NaN.
template <class D>
HWY_INLINE hn::Vec<D> exp_lanes(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  // e^x = 2^n · e^r with |r| <= ln2 / 2. The high part of ln 2 has 9 bits, so n · high is exact without fma
  // too. Comparisons keep NaN where Min and Max would lose it.
  const auto low = hn::Lt(x, hn::Set(d, -87.336544f));
  const auto high = hn::Gt(x, hn::Set(d, 88.72283f));
  const auto clamped = hn::IfThenZeroElse(hn::Or(low, high), x);
  const auto n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504f)));
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  // Minimax of (e^r - 1 - r) / r², relative error of e^r 3e-9.
  auto p = hn::Set(d, 0.00138144712f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.00836878069f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0416683941f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.166665201f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.499999934f));
  p = hn::MulAdd(hn::Mul(p, r), r, r);
  // n may be 128 (x near the overflow limit): scale in two steps of at most 127 each.
  const auto whole = hn::ConvertTo(di, n);
  const auto first = hn::ShiftRight<1>(whole);
  const auto power = [&](auto k)
                         HWY_ATTR { return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(k, hn::Set(di, 127)))); };
  const auto scaled = hn::Mul(hn::MulAdd(p, power(first), power(first)), power(hn::Sub(whole, first)));
  const auto inf = hn::Set(d, std::numeric_limits<float>::infinity());
  return hn::IfThenZeroElse(low, hn::IfThenElse(high, inf, scaled));
}

// 1 / (1 + e^-x)
template <class D>
HWY_INLINE hn::Vec<D> sigmoid_lanes(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp_lanes(d, hn::Neg(x))));
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per-target include guard
