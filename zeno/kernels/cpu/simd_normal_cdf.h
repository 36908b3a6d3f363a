// Φ(x) and φ(x), the distribution and density of the standard normal: what exact GELU needs. Included once
// per SIMD target like simd_lanes.h.
#if defined(ZENO_KERNELS_CPU_SIMD_NORMAL_CDF_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZENO_KERNELS_CPU_SIMD_NORMAL_CDF_H_
#undef ZENO_KERNELS_CPU_SIMD_NORMAL_CDF_H_
#else
#define ZENO_KERNELS_CPU_SIMD_NORMAL_CDF_H_
#endif

#include <hwy/highway.h>

#include "zeno/kernels/cpu/simd_exp.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
struct Normal {
  hn::Vec<D> cdf, pdf;
};

// Φ(-|x|) = e^(-z²) · erfcx(z) / 2 with z = |x| / √2: no cancellation in the left tail, where 1 + erf would
// lose all digits.
template <class D>
HWY_INLINE Normal<D> normal_lanes(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto half = hn::Set(d, 0.5f);
  const auto z = hn::Mul(hn::Abs(x), hn::Set(d, 0.707106781f));
  const auto e = exp_lanes(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
  // (1 + 2z) · erfcx(z) is smooth in q = (z - 4) / (z + 4): minimax over 0 <= z <= 10.5, relative error
  // 7e-10.
  const auto four = hn::Set(d, 4.0f);
  const auto far = hn::Min(z, hn::Set(d, 10.5f));  // beyond it e is 0
  const auto q = hn::Div(hn::Sub(far, four), hn::Add(far, four));
  auto p = hn::Set(d, -0.000632992600f);
  p = hn::MulAdd(p, q, hn::Set(d, -0.00110606524f));
  p = hn::MulAdd(p, q, hn::Set(d, 0.00507837970f));
  p = hn::MulAdd(p, q, hn::Set(d, -0.0160147783f));
  p = hn::MulAdd(p, q, hn::Set(d, 0.0372124332f));
  p = hn::MulAdd(p, q, hn::Set(d, -0.0663606024f));
  p = hn::MulAdd(p, q, hn::Set(d, 0.0937216483f));
  p = hn::MulAdd(p, q, hn::Set(d, -0.101037059f));
  p = hn::MulAdd(p, q, hn::Set(d, 0.0680978788f));
  p = hn::MulAdd(p, q, hn::Set(d, 0.0153796005f));
  p = hn::MulAdd(p, q, hn::Set(d, -0.139621132f));
  p = hn::MulAdd(p, q, hn::Set(d, 1.23299512f));
  const auto tail = hn::Div(hn::Mul(hn::Mul(p, e), half), hn::MulAdd(far, hn::Set(d, 2.0f), one));
  const auto cdf = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
  return {cdf, hn::Mul(e, hn::Set(d, 0.398942280f))};
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per-target include guard
