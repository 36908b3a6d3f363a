#include "zeno/kernels/optimizer.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/optimizer.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "zeno/kernels/cpu/simd_lanes.h"
#include "zeno/kernels/cpu/step_factors.h"

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
namespace zeno {

HWY_EXPORT(update_any);

namespace {

StepFactors step_factors(const OptimizerHyper& h, float grad_factor) {
  const bool adam = h.kind == OptimizerHyper::Kind::adam || h.kind == OptimizerHyper::Kind::adamw;
  const bool correct = adam && h.bias_correction;
  const double correction1 = correct ? 1 - std::pow(h.beta1, double(h.step)) : 1;
  const double correction2 = correct ? 1 - std::pow(h.beta2, double(h.step)) : 1;
  return {.grad = grad_factor,
          .decay = float(h.weight_decay),
          .keep = float(1 - h.lr * h.weight_decay),
          .beta1 = float(h.beta1),
          .one_beta1 = float(1 - h.beta1),
          .beta2 = float(h.beta2),
          .one_beta2 = float(1 - h.beta2),
          .step_size = float(h.lr / correction1),
          .root = float(std::sqrt(correction2)),
          .eps = float(h.eps),
          .momentum = float(h.momentum)};
}

void check(const OptimizerUpdate& op) {
  using Kind = OptimizerHyper::Kind;
  const Kind kind = op.hyper.kind;
  const int64_t n = op.master.count();
  const auto flat = [&](const char* name, const Tensor& t, bool needed) {
    if (!t && !needed) return;
    ensure(t.contiguous() && t.count() == n, "[optimizer] {}: got {} elements, expected {} like master", name,
           t.count(), n);
  };
  const bool adam = kind == Kind::adam || kind == Kind::adamw;
  flat("grad", op.grad, true);
  flat("m", op.m, adam || kind == Kind::lion || op.hyper.momentum != 0);
  flat("v", op.v, adam);
  flat("param", op.param, false);
  ensure(op.grad_factor != nullptr, "[optimizer] grad_factor: got null, expected an address");
  ensure(op.hyper.step >= 1, "[optimizer] step: got {}, expected 1 or more", op.hyper.step);
}

}  // namespace

void optimizer_update(StreamRef stream, const OptimizerUpdate& op) {
  check(op);
  stream.launch([=](Workers& workers) {
    const float grad_factor = *op.grad_factor;
    if (grad_factor == 0) return;
    const StepFactors factors = step_factors(op.hyper, grad_factor);
    constexpr int64_t kGrain = 16384;
    workers.for_ranges(op.master.count(), kGrain, [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(update_any)(op, factors, begin, end);
    });
  });
}

}  // namespace zeno
#endif  // HWY_ONCE
