#include "zeno/kernels/optimizer.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/optimizer.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "zeno/kernels/cpu/simd_lanes.h"
#include "zeno/kernels/step_factors.h"
#include "zeno/kernels/stochastic_rounding.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

using Kind = OptimizerHyper::Kind;

// One vector of parameters through one rule. The arithmetic follows PyTorch's single-tensor code step by
// step.
template <Kind kKind, class D>
HWY_INLINE hn::Vec<D> stepped(D d, const StepFactors& f, hn::Vec<D> g, hn::Vec<D> p, hn::Vec<D>& m,
                              hn::Vec<D>& v) {
  if constexpr (kKind == Kind::adamw || kKind == Kind::lion) p = hn::Mul(p, hn::Set(d, f.keep));
  if constexpr (kKind == Kind::adam || kKind == Kind::sgd) g = hn::MulAdd(p, hn::Set(d, f.decay), g);
  if constexpr (kKind == Kind::sgd) {
    m = hn::MulAdd(m, hn::Set(d, f.momentum), g);
    return hn::NegMulAdd(hn::Set(d, f.step_size), m, p);
  } else if constexpr (kKind == Kind::lion) {
    const auto mixed = hn::MulAdd(m, hn::Set(d, f.beta1), hn::Mul(g, hn::Set(d, f.one_beta1)));
    m = hn::MulAdd(m, hn::Set(d, f.beta2), hn::Mul(g, hn::Set(d, f.one_beta2)));
    // sign(0) is 0.
    const auto unit =
        hn::IfThenZeroElse(hn::Eq(mixed, hn::Zero(d)), hn::CopySign(hn::Set(d, f.step_size), mixed));
    return hn::Sub(p, hn::IfThenElse(hn::Eq(mixed, mixed), unit, mixed));
  } else {
    m = hn::MulAdd(hn::Sub(g, m), hn::Set(d, f.one_beta1), m);
    v = hn::MulAdd(hn::Mul(g, hn::Set(d, f.one_beta2)), g, hn::Mul(v, hn::Set(d, f.beta2)));
    const auto denominator = hn::Add(hn::Div(hn::Sqrt(v), hn::Set(d, f.root)), hn::Set(d, f.eps));
    return hn::NegMulAdd(hn::Set(d, f.step_size), hn::Div(m, denominator), p);
  }
}

template <Kind kKind, class G, class P>
struct Spans {
  static constexpr bool kHasV = kKind == Kind::adamw || kKind == Kind::adam;
  const G* grad;
  float* master;
  float* m;  // null: sgd without momentum
  float* v;
  P* param;  // null: no copy
  // Past the cache: the states go through it once and would push the copy out before anyone reads it.
  bool streaming;
};

template <Kind kKind, class G, class P, class Lanes>
HWY_INLINE void update_lanes(const StepFactors& f, const Spans<kKind, G, P>& s, int64_t i, Lanes lanes) {
  const FloatTag d;
  const auto g = hn::Mul(load(d, s.grad + i, lanes), hn::Set(d, f.grad));
  auto m = s.m ? load(d, s.m + i, lanes) : hn::Zero(d);
  auto v = hn::Zero(d);
  if constexpr (Spans<kKind, G, P>::kHasV) v = load(d, s.v + i, lanes);
  const auto p = stepped<kKind>(d, f, g, load(d, s.master + i, lanes), m, v);
  store(d, p, s.master + i, lanes);
  if (s.m) store(d, m, s.m + i, lanes);
  if constexpr (Spans<kKind, G, P>::kHasV) store(d, v, s.v + i, lanes);
  if (s.streaming) {
    stream(d, p, s.param + i, lanes);
  } else if (s.param) {
    store(d, p, s.param + i, lanes);
  }
}

template <Kind kKind>
void update_range(const OptimizerUpdate& op, const StepFactors& f, int64_t begin, int64_t end) {
  dispatch_float(op.grad.dtype, [&]<class G>() HWY_ATTR {
    dispatch_float(op.param ? op.param.dtype : DType::f32, [&]<class P>() HWY_ATTR {
      const FloatTag d;
      P* param = op.param ? op.param.as<P>() + begin : nullptr;
      const Spans<kKind, G, P> s{.grad = op.grad.as<G>() + begin,
                                 .master = op.master.as<float>() + begin,
                                 .m = op.m ? op.m.as<float>() + begin : nullptr,
                                 .v = op.v ? op.v.as<float>() + begin : nullptr,
                                 .param = param,
                                 .streaming = param && streams_well(param)};
      for_lanes(d, end - begin, [&](int64_t i, auto lanes) HWY_ATTR { update_lanes(f, s, i, lanes); });
      if (s.streaming) hwy::FlushStream();
    });
  });
}

void update_any(const OptimizerUpdate& op, const StepFactors& f, int64_t begin, int64_t end) {
  switch (op.hyper.kind) {
    case Kind::adamw:
      return update_range<Kind::adamw>(op, f, begin, end);
    case Kind::adam:
      return update_range<Kind::adam>(op, f, begin, end);
    case Kind::sgd:
      return update_range<Kind::sgd>(op, f, begin, end);
    case Kind::lion:
      return update_range<Kind::lion>(op, f, begin, end);
  }
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::cpu {

HWY_EXPORT(update_any);

namespace {

constexpr int64_t kRounded = 256;  // elements whose bf16 states are held in fp32 at once

// Elements [at, at + n) of a flat tensor.
Tensor part_of(const Tensor& t, int64_t at, int64_t n) {
  return t ? Tensor(t.data + size_t(at) * size_of(t.dtype), t.dtype, 1, n) : t;
}

// A bf16 state in fp32 for the time of an update; an fp32 state is used where it lies.
struct WideState {
  WideState(const Tensor& t, int64_t at, int64_t n) : state(part_of(t, at, n)), wide(state) {
    if (!state || state.dtype == DType::f32) return;
    for (int64_t i = 0; i < n; ++i) values[i] = float(state.as<BF16>()[i]);
    wide = Tensor(values, DType::f32, 1, n);
  }
  WideState(const WideState&) = delete;  // `wide` points inside
  void round(const uint64_t* noise, StateRole role) {
    if (!state || state.dtype == DType::f32) return;
    for (int64_t i = 0; i < state.cols; ++i) {
      values[i] = StochasticRounding::round(values[i], noise[i], role);
      state.as<BF16>()[i] = BF16(values[i]);
    }
  }
  Tensor state, wide;
  float values[kRounded];
};

void update_rounded(const OptimizerUpdate& op, const StepFactors& f, int64_t begin, int64_t end) {
  const StochasticRounding rounding(op.seed, op.hyper.step);
  uint64_t noise[kRounded];
  for (int64_t at = begin; at < end; at += kRounded) {
    const int64_t n = std::min(kRounded, end - at);
    WideState master(op.master, at, n), m(op.m, at, n), v(op.v, at, n);
    OptimizerUpdate part = op;
    part.grad = part_of(op.grad, at, n);
    part.master = master.wide;
    part.m = m.wide;
    part.v = v.wide;
    part.param = Tensor();
    HWY_DYNAMIC_DISPATCH(update_any)(part, f, 0, n);
    for (int64_t i = 0; i < n; ++i) noise[i] = rounding.noise(op.first_index + at + i);
    master.round(noise, StateRole::master);
    m.round(noise, StateRole::m);
    v.round(noise, StateRole::v);
    if (!op.param) continue;
    dispatch_float(op.param.dtype, [&]<class P>() {
      for (int64_t i = 0; i < n; ++i) op.param.as<P>()[at + i] = P(master.wide.as<float>()[i]);
    });
  }
}

}  // namespace

void optimizer_update(StreamRef stream, const OptimizerUpdate& op) {
  check_update(op);
  stream.launch([=](Workers& workers) {
    const float grad_factor = *op.grad_factor;
    if (grad_factor == 0) return;
    const StepFactors factors = step_factors(op.hyper, grad_factor);
    constexpr int64_t kGrain = 16384;
    const auto is_rounded = [](const Tensor& t) { return t && t.dtype == DType::bf16; };
    const bool rounded = is_rounded(op.master) || is_rounded(op.m) || is_rounded(op.v);
    workers.for_ranges(op.master.count(), kGrain, [&](int64_t begin, int64_t end, int) {
      if (rounded) return update_rounded(op, factors, begin, end);
      HWY_DYNAMIC_DISPATCH(update_any)(op, factors, begin, end);
    });
  });
}

}  // namespace zeno::cpu
#endif  // HWY_ONCE
