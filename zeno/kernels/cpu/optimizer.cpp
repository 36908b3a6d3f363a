#include "zeno/kernels/optimizer.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/optimizer.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "zeno/kernels/cpu/simd_lanes.h"
#include "zeno/kernels/cpu/simd_moments.h"
#include "zeno/kernels/step_factors.h"

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
    auto root = hn::Sqrt(v);
    // Divisions are most of the work. Some hundred steps on, this one changes nothing.
    if (f.root != 1) root = hn::Div(root, hn::Set(d, f.root));
    const auto denominator = hn::Add(root, hn::Set(d, f.eps));
    return hn::NegMulAdd(hn::Set(d, f.step_size), hn::Div(m, denominator), p);
  }
}

template <Kind kKind>
inline constexpr bool kHasV = kKind == Kind::adamw || kKind == Kind::adam;

// A copy of masters in bf16 (master_rest.h).
struct MasterCopy {
  uint16_t bits;
};
template <class D>
HWY_INLINE hn::Vec<U32Tag<D>> narrow(D, hn::Vec<D> v, MasterCopy) {
  const U32Tag<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto rounded = hn::Add(bits, hn::Set(du, 0x8000u)), quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  return hn::ShiftRight<16>(hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded));
}
template <class T>
using CopyOf = std::conditional_t<std::is_same_v<T, BF16>, MasterCopy, T>;

template <class Lanes>
HWY_INLINE Floats load_joined(const MasterCopy* copy, const int16_t* rest, Lanes lanes) {
  const FloatTag d;
  const auto high = hn::PromoteTo(BitsTag(), load_raw(d, reinterpret_cast<const uint16_t*>(copy), lanes));
  const auto low = hn::PromoteTo(IntTag(), load_raw(d, rest, lanes));
  return hn::BitCast(d, hn::Add(hn::ShiftLeft<16>(high), hn::BitCast(BitsTag(), low)));
}
template <class Lanes>
HWY_INLINE void store_split(Floats master, MasterCopy* copy, int16_t* rest, Lanes lanes) {
  const FloatTag d;
  store(d, master, copy, lanes);
  const hn::Rebind<uint16_t, FloatTag> d16;
  store_raw(d, hn::TruncateTo(d16, hn::BitCast(BitsTag(), master)), reinterpret_cast<uint16_t*>(rest), lanes);
}

// M: float, or int16_t for what `param` leaves.
template <Kind kKind, class G, class P, class M>
struct Spans {
  const G* grad;
  M* master;
  float* m;  // null: sgd without momentum
  float* v;
  P* param;  // null: no copy
  // Past the cache: the states go through it once and would push the copy out before anyone reads it.
  bool streaming;
};

template <Kind kKind, class G, class P, class M, class Lanes>
HWY_INLINE void update_lanes(const StepFactors& f, const Spans<kKind, G, P, M>& s, int64_t i, Lanes lanes) {
  constexpr bool kSplit = std::is_same_v<M, int16_t>;
  const FloatTag d;
  Floats master;
  if constexpr (kSplit) {
    master = load_joined(s.param + i, s.master + i, lanes);
  } else {
    master = load(d, s.master + i, lanes);
  }
  const auto g = hn::Mul(load(d, s.grad + i, lanes), hn::Set(d, f.grad));
  auto m = s.m ? load(d, s.m + i, lanes) : hn::Zero(d);
  auto v = hn::Zero(d);
  if constexpr (kHasV<kKind>) v = load(d, s.v + i, lanes);
  const auto p = stepped<kKind>(d, f, g, master, m, v);
  if (s.m) store(d, m, s.m + i, lanes);
  if constexpr (kHasV<kKind>) store(d, v, s.v + i, lanes);
  if constexpr (kSplit) {
    store_split(p, s.param + i, s.master + i, lanes);
  } else {
    store(d, p, s.master + i, lanes);
    if (s.streaming) {
      stream(d, p, s.param + i, lanes);
    } else if (s.param) {
      store(d, p, s.param + i, lanes);
    }
  }
}

template <class T>
HWY_INLINE T* from(const Tensor& t, int64_t begin) {
  return t ? reinterpret_cast<T*>(t.data) + begin : nullptr;
}

template <Kind kKind, class M, class P>
void update_range(const OptimizerUpdate& op, const StepFactors& f, int64_t begin, int64_t end) {
  dispatch_float(op.grad.dtype, [&]<class G>() HWY_ATTR {
    P* const param = from<P>(op.param, begin);
    const bool split = std::is_same_v<M, int16_t>;  // then the copy was read, and is in the cache
    const Spans<kKind, G, P, M> s{.grad = from<G>(op.grad, begin),
                                  .master = from<M>(op.master, begin),
                                  .m = from<float>(op.m, begin),
                                  .v = from<float>(op.v, begin),
                                  .param = param,
                                  .streaming = !split && param && streams_well(param)};
    for_lanes(FloatTag(), end - begin, [&](int64_t i, auto lanes) HWY_ATTR { update_lanes(f, s, i, lanes); });
    if (s.streaming) hwy::FlushStream();
  });
}

// The type of an array: known where the loop is compiled, or looked up for every vector. The usual mixes have
// loops of their own; all of them would be hundreds.
struct AnyType {
  static DType of(const Tensor& t) { return t.dtype; }
};
template <DType kType>
struct Fixed {
  static constexpr DType of(const Tensor&) { return kType; }
};

// Up to kMomentCell elements of a gradient, a state or the copy, from `at` on: all of a cell where it is kept
// in cells.
template <class Type, StateRole kRole = StateRole::master>
struct Part {
  Part(const Tensor& t, int64_t at) : tensor(t), first(at) {
    if (!t || Type::of(t) != DType::u8) return;
    exponent = cell().exponent;
    some_small = has_small<kRole>(cell());
  }

  MomentCell& cell() const {
    return reinterpret_cast<MomentCell*>(tensor.data)[uint64_t(first) / uint64_t(kMomentCell)];
  }
  template <class T>
  T* as(int64_t k) const {
    return reinterpret_cast<T*>(tensor.data) + first + k;
  }

  template <class Lanes>
  HWY_INLINE Floats load_lanes(int64_t k, Lanes lanes) const {
    const FloatTag d;
    switch (Type::of(tensor)) {
      case DType::bf16:
        return load(d, as<BF16>(k), lanes);
      case DType::f16:
        return load(d, as<F16>(k), lanes);
      case DType::u8:
        return decoded<kRole>(cell().codes + k, exponent, some_small);
      default:
        return load(d, as<float>(k), lanes);
    }
  }
  // Stores a state and returns what it will be read back as; what belongs to a cell goes to `waiting`.
  template <class Lanes>
  HWY_INLINE Floats store_rounded(Floats x, Bits noise, int64_t k, Lanes lanes, float* waiting) const {
    const FloatTag d;
    if (Type::of(tensor) == DType::bf16) {
      const auto bits = rounded_to_bf16<kRole>(x, noise);
      store_raw(d, hn::TruncateTo(hn::Rebind<uint16_t, FloatTag>(), bits), as<uint16_t>(k), lanes);
      return widen(d, bits, BF16());
    }
    const bool waits = kRole != StateRole::master && Type::of(tensor) == DType::u8;
    store(d, x, waits ? waiting + k : as<float>(k), lanes);
    return x;
  }
  template <class Lanes>
  HWY_INLINE void store_copy(Floats x, int64_t k, Lanes lanes, bool streaming) const {
    const FloatTag d;
    const auto put = [&](auto* p) HWY_ATTR { streaming ? stream(d, x, p, lanes) : store(d, x, p, lanes); };
    if (Type::of(tensor) == DType::bf16) return put(as<MasterCopy>(k));
    if (Type::of(tensor) == DType::f16) return put(as<F16>(k));
    put(as<float>(k));
  }

  const Tensor& tensor;
  int64_t first;
  uint32_t exponent = 0;    // of the cell
  bool some_small = false;  // codes of it
};

// What must be known of a whole cell before the first of its codes is.
struct Waiting {
  HWY_ALIGN float m[kMomentCell], v[kMomentCell];
  HWY_ALIGN uint32_t noise[kMomentCell];
};

template <Kind kKind, class Copied, class Master, class Moment>
HWY_INLINE void update_part(const OptimizerUpdate& op, const StepFactors& f,
                            const StochasticRounding& rounding, int64_t at, int64_t count, bool streaming,
                            Waiting& waiting) {
  const FloatTag d;
  const CellNoise noises(rounding, op.first_index + at);
  const Part<Copied> grad(op.grad, at), param(op.param, at);
  const Part<Master> master(op.master, at);
  const Part<Moment, StateRole::m> first(op.m, at);
  const Part<Moment, StateRole::v> second(op.v, at);
  const bool split = Master::of(op.master) == DType::i16;
  const auto load_master = [&](int64_t k, auto lanes) HWY_ATTR {
    return split ? load_joined(param.template as<MasterCopy>(k), master.template as<int16_t>(k), lanes)
                 : master.load_lanes(k, lanes);
  };
  for_lanes(d, count, [&](int64_t k, auto lanes) HWY_ATTR {
    const auto g = hn::Mul(grad.load_lanes(k, lanes), hn::Set(d, f.grad));
    auto m = op.m ? first.load_lanes(k, lanes) : hn::Zero(d);
    auto v = hn::Zero(d);
    if constexpr (kHasV<kKind>) v = second.load_lanes(k, lanes);
    auto p = stepped<kKind>(d, f, g, load_master(k, lanes), m, v);
    const auto noise = noises.at(k);
    hn::Store(noise, BitsTag(), waiting.noise + k);
    if (!split) p = master.store_rounded(p, noise, k, lanes, nullptr);
    if (op.m) first.store_rounded(m, noise, k, lanes, waiting.m);
    if constexpr (kHasV<kKind>) second.store_rounded(v, noise, k, lanes, waiting.v);
    if (split) {
      store_split(p, param.template as<MasterCopy>(k), master.template as<int16_t>(k), lanes);
    } else if (op.param) {
      param.store_copy(p, k, lanes, streaming);
    }
  });
  if (op.m && Moment::of(op.m) == DType::u8) {
    encode_cell<StateRole::m>(waiting.m, waiting.noise, first.cell());
  }
  if (kHasV<kKind> && Moment::of(op.v) == DType::u8) {
    encode_cell<StateRole::v>(waiting.v, waiting.noise, second.cell());
  }
}

template <Kind kKind, class Copied, class Master, class Moment>
void update_rounded(const OptimizerUpdate& op, const StepFactors& f, int64_t begin, int64_t end) {
  const StochasticRounding rounding(op.seed, op.hyper.step);
  const bool streaming = op.param && streams_well(op.param.data + size_t(begin) * size_of(op.param.dtype));
  Waiting waiting;
  for (int64_t at = begin; at < end; at += kMomentCell) {
    const int64_t count = std::min(kMomentCell, end - at);
    if (count < kMomentCell) waiting = {};
    update_part<kKind, Copied, Master, Moment>(op, f, rounding, at, count, streaming, waiting);
  }
  if (streaming) hwy::FlushStream();
}

// Where AdamW, gradients and the copy in bf16 and moments alike meet, the types are fixed.
template <class Master>
bool update_usual(const OptimizerUpdate& op, const StepFactors& f, int64_t begin, int64_t end) {
  using B = Fixed<DType::bf16>;
  using Cells = Fixed<DType::u8>;
  const bool usual = op.hyper.kind == Kind::adamw && op.master.dtype == Master::of(op.master) &&
                     op.grad.dtype == DType::bf16 && (!op.param || op.param.dtype == DType::bf16) &&
                     op.m.dtype == op.v.dtype && op.m.dtype != DType::f32;
  if (!usual) return false;
  op.m.dtype == DType::u8 ? update_rounded<Kind::adamw, B, Master, Cells>(op, f, begin, end)
                          : update_rounded<Kind::adamw, B, Master, B>(op, f, begin, end);
  return true;
}

template <Kind kKind>
void update_kind(const OptimizerUpdate& op, const StepFactors& f, int64_t begin, int64_t end) {
  const auto plain = [](const Tensor& t) { return !t || t.dtype == DType::f32; };
  if (plain(op.m) && plain(op.v)) {
    if (op.master.dtype == DType::i16) return update_range<kKind, int16_t, MasterCopy>(op, f, begin, end);
    if (op.master.dtype == DType::f32) {
      return dispatch_float(op.param ? op.param.dtype : DType::f32, [&]<class P>() HWY_ATTR {
        update_range<kKind, float, CopyOf<P>>(op, f, begin, end);
      });
    }
  }
  if (update_usual<Fixed<DType::i16>>(op, f, begin, end)) return;
  if (update_usual<Fixed<DType::f32>>(op, f, begin, end)) return;
  if (update_usual<Fixed<DType::bf16>>(op, f, begin, end)) return;
  update_rounded<kKind, AnyType, AnyType, AnyType>(op, f, begin, end);
}

void update_any(const OptimizerUpdate& op, const StepFactors& f, int64_t begin, int64_t end) {
  switch (op.hyper.kind) {
    case Kind::adamw:
      return update_kind<Kind::adamw>(op, f, begin, end);
    case Kind::adam:
      return update_kind<Kind::adam>(op, f, begin, end);
    case Kind::sgd:
      return update_kind<Kind::sgd>(op, f, begin, end);
    case Kind::lion:
      return update_kind<Kind::lion>(op, f, begin, end);
  }
}

void copy_masters(const OptimizerUpdate& op, int64_t begin, int64_t end) {
  const Part<AnyType> master(op.master, begin), param(op.param, begin);
  for_lanes(FloatTag(), end - begin, [&](int64_t k, auto lanes) HWY_ATTR {
    param.store_copy(master.load_lanes(k, lanes), k, lanes, false);
  });
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::cpu {

HWY_EXPORT(update_any);
HWY_EXPORT(copy_masters);

void optimizer_update(StreamRef stream, const OptimizerUpdate& op) {
  check_update(op);
  stream.launch([=](Workers& workers) {
    const float grad_factor = *op.grad_factor;
    const bool skipped = grad_factor == 0;
    if (skipped && (!op.param || op.master.dtype == DType::i16)) return;  // the copy is where it was
    const StepFactors factors = step_factors(op.hyper, grad_factor);
    constexpr int64_t kGrain = 16384;  // whole cells
    workers.for_ranges(op.master.count(), kGrain, [&](int64_t begin, int64_t end, int) {
      skipped ? HWY_DYNAMIC_DISPATCH(copy_masters)(op, begin, end)
              : HWY_DYNAMIC_DISPATCH(update_any)(op, factors, begin, end);
    });
  });
}

}  // namespace zeno::cpu
#endif  // HWY_ONCE
