#include "zeno/comm/reduce_tree.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "zeno/base/error.h"
#include "zeno/base/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/comm/reduce_tree.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace zeno::comm {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using U = hn::RebindToUnsigned<F>;
using I = hn::RebindToSigned<F>;
using Half = hn::Rebind<uint16_t, F>;
using Vector = hn::Vec<F>;

HWY_INLINE Vector load(const float* p) { return hn::LoadU(F(), p); }
HWY_INLINE Vector load(const BF16* p) {
  const auto wide = hn::PromoteTo(U(), hn::LoadU(Half(), reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(F(), hn::ShiftLeft<16>(wide));
}
HWY_INLINE Vector load(const F16* p) {
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, F> half;
  return hn::PromoteTo(F(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(p)));
#else  // without conversion instructions: one by one, so that every target rounds the same way
  HWY_ALIGN std::array<float, HWY_MAX_BYTES / sizeof(float)> lanes;
  for (size_t i = 0; i < hn::Lanes(F()); ++i) lanes[i] = float(p[i]);
  return hn::Load(F(), lanes.data());
#endif
}

template <bool kStream, class D, class V, class T>
HWY_INLINE void put(D d, V v, T* p) {
  if constexpr (kStream && hn::MaxLanes(D()) * sizeof(T) >= 16) {  // half a small vector cannot stream
    hn::Stream(v, d, p);
  } else {
    hn::StoreU(v, d, p);
  }
}
template <bool kStream>
HWY_INLINE void store(Vector v, float* p) {
  put<kStream>(F(), v, p);
}
template <bool kStream>
HWY_INLINE void store(Vector v, BF16* p) {
  const auto bits = hn::BitCast(U(), v);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(U(), 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(U(), 0x7fff))));
  const auto quiet = hn::Or(upper, hn::Set(U(), 0x40));
  const auto nan = hn::RebindMask(U(), hn::Ne(v, v));
  const auto result = hn::IfThenElse(nan, quiet, rounded);
  put<kStream>(Half(), hn::DemoteTo(Half(), hn::BitCast(I(), result)), reinterpret_cast<uint16_t*>(p));
}
template <bool kStream>
HWY_INLINE void store(Vector v, F16* p) {
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, F> half;
  const auto bits = hn::BitCast(Half(), hn::DemoteTo(half, v));
  put<kStream>(Half(), bits, reinterpret_cast<uint16_t*>(p));
#else
  HWY_ALIGN std::array<float, HWY_MAX_BYTES / sizeof(float)> lanes;
  hn::Store(v, F(), lanes.data());
  for (size_t i = 0; i < hn::Lanes(F()); ++i) p[i] = F16(lanes[i]);
#endif
}

// The tree over `N` inputs for one vector; N is small, so the recursion unrolls.
template <int N, class In>
HWY_INLINE Vector tree_at(const In* const* inputs, int64_t i) {
  if constexpr (N == 1) {
    return load(inputs[0] + i);
  } else {
    constexpr int kLeft = int(std::bit_floor(unsigned(N - 1)));
    return hn::Add(tree_at<kLeft>(inputs, i), tree_at<N - kLeft>(inputs + kLeft, i));
  }
}
template <int N, class In>
float scalar_tree(const In* const* inputs, int64_t i) {
  if constexpr (N == 1) {
    return float(inputs[0][i]);
  } else {
    constexpr int kLeft = int(std::bit_floor(unsigned(N - 1)));
    return scalar_tree<kLeft>(inputs, i) + scalar_tree<N - kLeft>(inputs + kLeft, i);
  }
}

template <int N, bool kAccumulate, bool kStream, class Out, class In>
HWY_INLINE void step(Out* out, const In* const* inputs, int64_t i) {
  Vector sum = tree_at<N>(inputs, i);
  if constexpr (kAccumulate) sum = hn::Add(load(out + i), sum);
  store<kStream>(sum, out + i);
}
template <int N, bool kAccumulate, class Out, class In>
void scalar_range(Out* out, const In* const* inputs, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    float sum = scalar_tree<N>(inputs, i);
    if constexpr (kAccumulate) sum = float(out[i]) + sum;
    out[i] = Out(sum);
  }
}

// Elements before the first address that streaming stores may go to.
template <class Out>
int64_t unaligned_head(const Out* out) {
  constexpr size_t kAlign = 64;
  return int64_t((kAlign - reinterpret_cast<uintptr_t>(out) % kAlign) % kAlign / sizeof(Out));
}

constexpr int64_t kPage = 1024;  // elements between the two positions that streaming alternates between

template <int N, bool kAccumulate, class Out, class In>
void sum_range(Out* out, const In* const* inputs, int64_t count, bool streaming) {
  const int64_t lanes = int64_t(hn::Lanes(F()));
  int64_t i = 0;
  if (streaming) {
    i = std::min(count, unaligned_head(out));
    scalar_range<N, kAccumulate>(out, inputs, 0, i);
    for (; i + 2 * kPage <= count; i += 2 * kPage) {
      for (int64_t j = i; j < i + kPage; j += lanes) {
        step<N, kAccumulate, true>(out, inputs, j);
        step<N, kAccumulate, true>(out, inputs, j + kPage);
      }
    }
    hwy::FlushStream();
  }
  for (; i + lanes <= count; i += lanes) step<N, kAccumulate, false>(out, inputs, i);
  scalar_range<N, kAccumulate>(out, inputs, i, count);
}

constexpr int kGroup = 4;         // inputs added at once: a power of two, so that groups are subtrees
constexpr int64_t kBlock = 2048;  // elements whose partial sums stay in the first-level cache

template <bool kAccumulate, class Out, class In>
void sum_inputs(Out* out, const In* const* inputs, int n, int64_t count, bool streaming);

// For more than kGroup inputs: partial sums of the groups, block by block, then the tree over the partial
// sums.
template <bool kAccumulate, class Out, class In>
void sum_groups(Out* out, const In* const* inputs, int n, int64_t count, bool streaming) {
  constexpr int kMostGroups = 16;
  alignas(64) std::array<std::array<float, kBlock>, kMostGroups> partial;
  std::array<const float*, kMostGroups> views;
  int width = kGroup;  // inputs below one partial sum
  while (div_ceil(n, width) > kMostGroups) width *= kGroup;
  const int groups = div_ceil(n, width);
  std::array<const In*, 512> moved;
  int64_t length = 0;
  for (int64_t at = 0; at < count; at += length) {
    const int64_t head = unaligned_head(out + at);
    length = std::min(head > 0 ? head : kBlock, count - at);
    for (int g = 0; g < groups; ++g) {
      const int first = g * width, size = std::min(width, n - first);
      for (int k = 0; k < size; ++k) moved[size_t(k)] = inputs[first + k] + at;
      views[size_t(g)] = partial[size_t(g)].data();
      sum_inputs<false>(partial[size_t(g)].data(), moved.data(), size, length, false);
    }
    sum_inputs<kAccumulate>(out + at, views.data(), groups, length, streaming);
  }
}

template <bool kAccumulate, class Out, class In>
void sum_inputs(Out* out, const In* const* inputs, int n, int64_t count, bool streaming) {
  switch (n) {
    case 1:
      return sum_range<1, kAccumulate>(out, inputs, count, streaming);
    case 2:
      return sum_range<2, kAccumulate>(out, inputs, count, streaming);
    case 3:
      return sum_range<3, kAccumulate>(out, inputs, count, streaming);
    case 4:
      return sum_range<4, kAccumulate>(out, inputs, count, streaming);
    default:
      return sum_groups<kAccumulate>(out, inputs, n, count, streaming);
  }
}

template <class In>
void sum_from(const TreeSum& sum, const In* const* inputs, int n, int64_t count) {
  dispatch_float(sum.out_dtype, [&]<class Out>() {
    Out* out = reinterpret_cast<Out*>(sum.out);
    if (sum.accumulate) {
      sum_inputs<true>(out, inputs, n, count, sum.streaming);
    } else {
      sum_inputs<false>(out, inputs, n, count, sum.streaming);
    }
  });
}

void sum_all(const TreeSum& sum, const std::byte* const* inputs, int n, int64_t count) {
  dispatch_float(sum.dtype,
                 [&]<class In>() { sum_from(sum, reinterpret_cast<const In* const*>(inputs), n, count); });
}

void stream_copy(std::byte* to, const std::byte* from, size_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  constexpr size_t kBytes = 4096;
  const size_t lanes = hn::Lanes(d);
  auto* out = reinterpret_cast<uint8_t*>(to);
  const auto* in = reinterpret_cast<const uint8_t*>(from);
  size_t i = std::min(bytes, size_t(unaligned_head(out)));
  std::memcpy(to, from, i);
  for (; i + 4 * kBytes <= bytes; i += 4 * kBytes) {
    for (size_t j = i; j < i + kBytes; j += lanes) {
      const auto a = hn::LoadU(d, in + j), b = hn::LoadU(d, in + j + kBytes);
      const auto e = hn::LoadU(d, in + j + 2 * kBytes), f = hn::LoadU(d, in + j + 3 * kBytes);
      hn::Stream(a, d, out + j);
      hn::Stream(b, d, out + j + kBytes);
      hn::Stream(e, d, out + j + 2 * kBytes);
      hn::Stream(f, d, out + j + 3 * kBytes);
    }
  }
  hwy::FlushStream();
  std::memcpy(to + i, from + i, bytes - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace zeno::comm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::comm {
HWY_EXPORT(sum_all);
HWY_EXPORT(stream_copy);

void tree_sum(const TreeSum& sum, std::span<const std::byte* const> inputs, int64_t count) {
  ensure(!inputs.empty() && inputs.size() <= 4096, "[tree_sum] got {} inputs, expected 1 to 4096",
         inputs.size());
  HWY_DYNAMIC_DISPATCH(sum_all)(sum, inputs.data(), int(inputs.size()), count);
}

void bulk_copy(std::byte* to, const std::byte* from, size_t bytes, bool streaming) {
  if (bytes == 0) return;
  if (streaming) {
    HWY_DYNAMIC_DISPATCH(stream_copy)(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace zeno::comm
#endif
