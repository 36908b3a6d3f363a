// Vector access for element-wise and reduction kernels: N neighbouring values of one dtype travel as packed
// words of up to 16 bytes and are converted to fp32 in registers. Device code only, apart from the two host
// helpers at the end that decide whether a tensor allows it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "zeno/device/tensor.h"

namespace zeno::cuda {

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }

template <class T>
__device__ inline T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) return x;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return __float2bfloat16_rn(x);
  if constexpr (std::is_same_v<T, __half>) return __float2half_rn(x);
}

// N values as they lie in memory. Words are as wide as N allows: 16 bytes, or less for short groups.
template <class T, int N>
struct Pack {
  static constexpr int kBytes = N * int(sizeof(T));
  using Word = std::conditional_t<
      kBytes % 16 == 0, uint4,
      std::conditional_t<kBytes == 8, uint2, std::conditional_t<kBytes == 4, uint32_t, uint16_t>>>;
  static constexpr int kWords = kBytes / int(sizeof(Word));
  Word words[kWords];
};

// Elements that fill 16 bytes.
template <class T>
inline constexpr int kVector = 16 / int(sizeof(T));

template <int N, class T>
__device__ inline Pack<T, N> load(const T* from) {
  Pack<T, N> pack;
  const auto* words = reinterpret_cast<const typename Pack<T, N>::Word*>(from);
#pragma unroll
  for (int i = 0; i < Pack<T, N>::kWords; ++i) pack.words[i] = words[i];
  return pack;
}

// For data that this kernel touches once: leaves the caches to data that is used again.
template <int N, class T>
__device__ inline Pack<T, N> load_once(const T* from) {
  Pack<T, N> pack;
  const auto* words = reinterpret_cast<const typename Pack<T, N>::Word*>(from);
#pragma unroll
  for (int i = 0; i < Pack<T, N>::kWords; ++i) pack.words[i] = __ldcs(words + i);
  return pack;
}

template <int N, class T>
__device__ inline void store(T* to, const Pack<T, N>& pack) {
  auto* words = reinterpret_cast<typename Pack<T, N>::Word*>(to);
#pragma unroll
  for (int i = 0; i < Pack<T, N>::kWords; ++i) words[i] = pack.words[i];
}

// The same where the machine code showed that the compiler takes the 16-byte assignment apart into four
// stores of 4 bytes: by an instruction that it leaves alone. To global memory only.
template <int N, class T>
__device__ inline void store_whole(T* to, const Pack<T, N>& pack) {
  auto* words = reinterpret_cast<typename Pack<T, N>::Word*>(to);
#pragma unroll
  for (int i = 0; i < Pack<T, N>::kWords; ++i) __stwb(words + i, pack.words[i]);
}

template <int N, class T>
__device__ inline void store_once(T* to, const Pack<T, N>& pack) {
  auto* words = reinterpret_cast<typename Pack<T, N>::Word*>(to);
#pragma unroll
  for (int i = 0; i < Pack<T, N>::kWords; ++i) __stcs(words + i, pack.words[i]);
}

template <int N, class T>
__device__ inline void unpack(const Pack<T, N>& pack, float (&x)[N]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16> && N % 2 == 0) {
    // One instruction each; the library's conversion takes the upper half out first.
    const auto* pairs = reinterpret_cast<const uint32_t*>(pack.words);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      x[2 * i] = __uint_as_float(pairs[i] << 16);
      x[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
    }
  } else {
    const T* values = reinterpret_cast<const T*>(pack.words);
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = to_float(values[i]);
  }
}

template <class T, int N>
__device__ inline Pack<T, N> pack(const float (&x)[N]) {
  Pack<T, N> pack;
  if constexpr (std::is_same_v<T, __nv_bfloat16> && N % 2 == 0) {
    auto* pairs = reinterpret_cast<__nv_bfloat162*>(pack.words);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) pairs[i] = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
  } else if constexpr (std::is_same_v<T, __half> && N % 2 == 0) {
    auto* pairs = reinterpret_cast<__half2*>(pack.words);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) pairs[i] = __floats2half2_rn(x[2 * i], x[2 * i + 1]);
  } else {
    T* values = reinterpret_cast<T*>(pack.words);
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = from_float<T>(x[i]);
  }
  return pack;
}

// An index that points outside its table is a bug of the caller: stop the device instead of reading on.
__device__ inline void expect(bool ok) {
  if (!ok) __trap();
}

// dispatch_float with the device's own types.
template <class F>
decltype(auto) dispatch_device(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return std::forward<F>(f).template operator()<float>();
    case DType::bf16:
      return std::forward<F>(f).template operator()<__nv_bfloat16>();
    case DType::f16:
      return std::forward<F>(f).template operator()<__half>();
    default:
      fail(ErrorKind::internal, "[dtype] got {}, expected a floating type", name_of(dtype));
  }
}

template <class T>
T* pointer(const Tensor& t) {
  return reinterpret_cast<T*>(t.data);
}

// Whether every row of `t` starts on `bytes` (16 unless told otherwise). An empty view does.
inline bool rows_aligned(const Tensor& t, size_t bytes = 16) {
  return reinterpret_cast<uintptr_t>(t.data) % bytes == 0 &&
         (t.rows <= 1 || size_t(t.stride) * size_of(t.dtype) % bytes == 0);
}

}  // namespace zeno::cuda
