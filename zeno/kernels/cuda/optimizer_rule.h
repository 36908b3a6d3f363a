// One element of an optimizer update, and the arrays it comes from and goes to. Device code, for the kernels
// of optimizer_update.
#pragma once

#include "zeno/kernels/cuda/vector.h"
#include "zeno/kernels/master_rest.h"
#include "zeno/kernels/step_factors.h"
#include "zeno/kernels/stochastic_rounding.h"

namespace zeno::cuda {

using Kind = OptimizerHyper::Kind;

// The CPU's rule, operation by operation, so that both give the same bits.
template <Kind kKind>
__device__ inline float stepped(const StepFactors& f, float g, float p, float& m, float& v) {
  if constexpr (kKind == Kind::adamw || kKind == Kind::lion) p = __fmul_rn(p, f.keep);
  if constexpr (kKind == Kind::adam || kKind == Kind::sgd) g = __fmaf_rn(p, f.decay, g);
  if constexpr (kKind == Kind::sgd) {
    m = __fmaf_rn(m, f.momentum, g);
    return __fmaf_rn(-f.step_size, m, p);
  } else if constexpr (kKind == Kind::lion) {
    const float mixed = __fmaf_rn(m, f.beta1, __fmul_rn(g, f.one_beta1));
    m = __fmaf_rn(m, f.beta2, __fmul_rn(g, f.one_beta2));
    const float unit = mixed == 0 ? 0 : copysignf(f.step_size, mixed);
    return __fsub_rn(p, mixed == mixed ? unit : mixed);
  } else {
    m = __fmaf_rn(__fsub_rn(g, m), f.one_beta1, m);
    v = __fmaf_rn(__fmul_rn(g, f.one_beta2), g, __fmul_rn(v, f.beta2));
    const float denominator = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), f.root), f.eps);
    return __fmaf_rn(-f.step_size, __fdiv_rn(m, denominator), p);
  }
}

template <Kind kKind>
inline constexpr bool kHasV = kKind == Kind::adamw || kKind == Kind::adam;

struct Array {
  std::byte* data;  // null: there is none
  DType dtype;
};

struct UpdateArgs {
  StepFactors factors;  // but for `grad`
  Array grad, master, m, v, param;
  const float* grad_factor;
  int64_t count;
  StochasticRounding rounding;
  int64_t first_index;
};

template <class T>
__device__ inline T* at(const Array& array, int64_t i) {
  return reinterpret_cast<T*>(array.data) + i;
}

// N elements of a dtype known at run time, as they lie in memory: loading and converting are apart, so that
// all loads of a thread are on their way before the first is needed.
template <int N>
union AnyPack {
  Pack<float, N> wide;
  Pack<__nv_bfloat16, N> bf16;
  Pack<__half, N> f16;

  __device__ void load(const Array& from, DType dtype, int64_t i) {
    if (dtype == DType::f32) {
      wide = load_once<N>(at<float>(from, i));
    } else {
      f16 = load_once<N>(at<__half>(from, i));
    }
  }
  __device__ void get(DType dtype, float (&x)[N]) const {
    if (dtype == DType::f32) return unpack(wide, x);
    if (dtype == DType::bf16) return unpack(bf16, x);
    unpack(f16, x);
  }
  __device__ uint16_t half(int k) const { return reinterpret_cast<const uint16_t*>(f16.words)[k]; }
};

// Masters from their copies and what those leave of them.
template <int N>
__device__ inline void join(const AnyPack<N>& copies, const AnyPack<N>& rests, float (&x)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) x[k] = __uint_as_float(joined_master(copies.half(k), int16_t(rests.half(k))));
}

template <int N, class Half>
__device__ inline Pack<__nv_bfloat16, N> pack_halves(const float (&x)[N], const Half& half) {
  Pack<__nv_bfloat16, N> packed;
  auto* const halves = reinterpret_cast<uint16_t*>(packed.words);
#pragma unroll
  for (int k = 0; k < N; ++k) halves[k] = half(__float_as_uint(x[k]));
  return packed;
}

// States are read and written once per step; a bf16 one is rounded at random, and `x` becomes what was
// stored. Of split masters the rest is stored, and the copy by put_param.
template <int N>
__device__ inline void put_state(const Array& to, int64_t i, float (&x)[N], const uint32_t (&noise)[N],
                                 StateRole role) {
  if (to.dtype == DType::f32) return store_once<N>(at<float>(to, i), pack<float>(x));
  if (to.dtype == DType::i16) {
    const auto rest = [](uint32_t bits) { return uint16_t(master_rest(bits)); };
    return store_once<N>(at<__nv_bfloat16>(to, i), pack_halves(x, rest));
  }
#pragma unroll
  for (int k = 0; k < N; ++k) x[k] = StochasticRounding::round(x[k], noise[k], role);
  store_once<N>(at<__nv_bfloat16>(to, i), pack<__nv_bfloat16>(x));
}

template <int N>
__device__ inline void put_param(const Array& to, int64_t i, const float (&x)[N]) {
  if (to.dtype == DType::f32) return store<N>(at<float>(to, i), pack<float>(x));
  if (to.dtype == DType::bf16) {
    return store<N>(at<__nv_bfloat16>(to, i),
                    pack_halves(x, [](uint32_t bits) { return master_copy(bits); }));
  }
  store<N>(at<__half>(to, i), pack<__half>(x));
}

// Updates with moments in cells (optimizer_cells.cu).
void launch_cell_update(cudaStream_t stream, Kind kind, const UpdateArgs& args);

}  // namespace zeno::cuda
