// Vector loads and stores of fp32, bf16 and fp16 storage as fp32 lanes. Included once per SIMD target, inside
// a file that uses hwy/foreach_target.h. Stores round to nearest even and give the bits of BF16(float) and
// F16(float).
#if defined(ZENO_KERNELS_CPU_SIMD_LANES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZENO_KERNELS_CPU_SIMD_LANES_H_
#undef ZENO_KERNELS_CPU_SIMD_LANES_H_
#else
#define ZENO_KERNELS_CPU_SIMD_LANES_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "zeno/base/float16.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
template <class D>
using U32Tag = hn::RebindToUnsigned<D>;

// How much of a vector an access covers. A part goes through a small buffer, so the lanes see the same
// arithmetic as in a full vector and nothing beyond the array is touched; missing lanes are zero.
struct AllLanes {};
struct SomeLanes {
  size_t count;
};

template <class D, class T>
HWY_INLINE hn::Vec<hn::Rebind<T, D>> load_raw(D, const T* p, AllLanes) {
  return hn::LoadU(hn::Rebind<T, D>(), p);
}
template <class D, class T>
HWY_INLINE hn::Vec<hn::Rebind<T, D>> load_raw(D, const T* p, SomeLanes some) {
  HWY_ALIGN T part[HWY_MAX_BYTES / sizeof(T)] = {};
  std::memcpy(part, p, some.count * sizeof(T));
  return hn::Load(hn::Rebind<T, D>(), part);
}
template <class D, class T>
HWY_INLINE void store_raw(D, hn::Vec<hn::Rebind<T, D>> v, T* p, AllLanes) {
  hn::StoreU(v, hn::Rebind<T, D>(), p);
}
template <class D, class T>
HWY_INLINE void store_raw(D, hn::Vec<hn::Rebind<T, D>> v, T* p, SomeLanes some) {
  HWY_ALIGN T part[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(v, hn::Rebind<T, D>(), part);
  std::memcpy(p, part, some.count * sizeof(T));
}

// The 16 bits of a bf16 or fp16 number, zero-extended to 32 bits per lane, to and from fp32.
template <class D>
HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<U32Tag<D>> bits, BF16) {
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

template <class D>
HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<U32Tag<D>> bits, F16) {
  const U32Tag<D> du;
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fffu)));
  const auto exponent = hn::And(magnitude, hn::Set(du, 0x7c00u << 13));
  const auto normal = hn::Add(magnitude, hn::Set(du, 112u << 23));
  const auto infinite = hn::Add(normal, hn::Set(du, 112u << 23));
  // A denormal is mantissa · 2^-24: give it an exponent and take the implicit one away.
  const auto tiny = hn::Sub(hn::BitCast(d, hn::Add(normal, hn::Set(du, 1u << 23))), hn::Set(d, 0x1p-14f));
  auto result = hn::IfThenElse(hn::Eq(exponent, hn::Set(du, 0x7c00u << 13)), infinite, normal);
  result = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), hn::BitCast(du, tiny), result);
  return hn::BitCast(d, hn::Or(result, sign));
}

template <class D>
HWY_INLINE hn::Vec<U32Tag<D>> narrow(D d, hn::Vec<D> v, BF16) {
  const U32Tag<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto high = hn::ShiftRight<16>(bits);
  const auto bias = hn::Add(hn::And(high, hn::Set(du, 1u)), hn::Set(du, 0x7fffu));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, bias));
  const auto nan = hn::RebindMask(du, hn::IsNaN(v));
  (void)d;
  return hn::IfThenElse(nan, hn::Or(high, hn::Set(du, 0x40u)), rounded);
}

template <class D>
HWY_INLINE hn::Vec<U32Tag<D>> narrow(D d, hn::Vec<D> v, F16) {
  const U32Tag<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
  const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const auto shifted = hn::Add(hn::Add(magnitude, odd), hn::Set(du, 0xfffu - (112u << 23)));
  // Below 2^-14 the result is a denormal: adding 0.5 lets the float adder round at the 2^-24 place.
  const auto half = hn::Set(d, 0.5f);
  const auto tiny = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), half)), hn::BitCast(du, half));
  const auto value = hn::BitCast(d, magnitude);
  auto result = hn::ShiftRight<13>(shifted);
  result = hn::IfThenElse(hn::RebindMask(du, hn::Lt(value, hn::Set(d, 0x1p-14f))), tiny, result);
  result =
      hn::IfThenElse(hn::RebindMask(du, hn::Ge(value, hn::Set(d, 65536.0f))), hn::Set(du, 0x7c00u), result);
  const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3ffu));
  const auto nan = hn::RebindMask(du, hn::IsNaN(v));
  result = hn::IfThenElse(nan, hn::Or(payload, hn::Set(du, 0x7e00u)), result);
  return hn::Or(result, sign);
}

template <class D, class Lanes>
HWY_INLINE hn::Vec<D> load(D d, const float* p, Lanes lanes) {
  return load_raw(d, p, lanes);
}
template <class D, class Lanes, class Half>
HWY_INLINE hn::Vec<D> load(D d, const Half* p, Lanes lanes) {
  const auto raw = load_raw(d, reinterpret_cast<const uint16_t*>(p), lanes);
  return widen(d, hn::PromoteTo(U32Tag<D>(), raw), Half());
}

// fp32 lanes as they will be stored in memory.
template <class D>
HWY_INLINE hn::Vec<D> raw_of(D, hn::Vec<D> v, float) {
  return v;
}
template <class D, class Half>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> raw_of(D d, hn::Vec<D> v, Half half) {
  // Signed to unsigned with saturation: the values fit, so it only drops the upper half.
  return hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::BitCast(hn::RebindToSigned<D>(), narrow(d, v, half)));
}
HWY_INLINE float* raw_pointer(float* p) { return p; }
template <class Half>
HWY_INLINE uint16_t* raw_pointer(Half* p) {
  return reinterpret_cast<uint16_t*>(p);
}

template <class D, class T, class Lanes>
HWY_INLINE void store(D d, hn::Vec<D> v, T* p, Lanes lanes) {
  store_raw(d, raw_of(d, v, T()), raw_pointer(p), lanes);
}

// Past the caches, for results much larger than them: saves reading the lines first. A whole vector needs p
// aligned to it (streams_well); call hwy::FlushStream() before the loop's task ends.
template <class D, class T>
HWY_INLINE void stream(D d, hn::Vec<D> v, T* p, AllLanes) {
  const auto raw = raw_of(d, v, T());
  hn::Stream(raw, hn::DFromV<decltype(raw)>(), raw_pointer(p));
}
template <class D, class T>
HWY_INLINE void stream(D d, hn::Vec<D> v, T* p, SomeLanes some) {
  store(d, v, p, some);
}
HWY_INLINE bool streams_well(const void* p) { return reinterpret_cast<uintptr_t>(p) % HWY_MAX_BYTES == 0; }

// body(i, lanes) over [0, count) in whole vectors, then once for the rest.
template <class D, class Body>
HWY_INLINE void for_lanes(D d, int64_t count, const Body& body) {
  const int64_t n = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + n <= count; i += n) body(i, AllLanes());
  if (i < count) body(i, SomeLanes{size_t(count - i)});
}

// One number from a vector, in a fixed order.
template <class D>
HWY_INLINE float sum_lanes(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per-target include guard
