// random_bits32 of base/rng.h on vectors. Included once per SIMD target, inside a file that uses
// hwy/foreach_target.h.
#if defined(ZENO_KERNELS_CPU_SIMD_RANDOM_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZENO_KERNELS_CPU_SIMD_RANDOM_H_
#undef ZENO_KERNELS_CPU_SIMD_RANDOM_H_
#else
#define ZENO_KERNELS_CPU_SIMD_RANDOM_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// first, first + 1, …: Highway's Iota writes them one by one to memory, where they are not yet constants.
template <class DU>
HWY_INLINE hn::Vec<DU> counters_from(DU du, uint32_t first) {
  return hn::Add(hn::Iota(du, 0), hn::Set(du, first));
}

template <class DU>
HWY_INLINE hn::Vec<DU> random_bits32(DU du, uint64_t key, hn::Vec<DU> counters) {
  auto bits = hn::Xor(counters, hn::Set(du, uint32_t(key)));
  bits = hn::Mul(hn::Xor(bits, hn::ShiftRight<16>(bits)), hn::Set(du, 0x7feb352du));
  const auto high = hn::Xor(hn::ShiftRight<15>(bits), hn::Set(du, uint32_t(key >> 32)));
  bits = hn::Mul(hn::Xor(bits, high), hn::Set(du, 0x846ca68bu));
  return hn::Xor(bits, hn::ShiftRight<16>(bits));
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per-target include guard
