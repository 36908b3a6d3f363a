#include "zeno/kernels/optimizer.h"

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/vector.h"
#include "zeno/kernels/step_factors.h"
#include "zeno/kernels/stochastic_rounding.h"

namespace zeno::cuda {
namespace {

using Kind = OptimizerHyper::Kind;

constexpr int kThreads = 256;

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
};

// States are read and written once per step; a bf16 one is rounded at random, and `x` becomes what was
// stored.
template <int N>
__device__ inline void put_state(const Array& to, int64_t i, float (&x)[N], const uint64_t (&noise)[N],
                                 StateRole role) {
  if (to.dtype == DType::f32) return store_once<N>(at<float>(to, i), pack<float>(x));
#pragma unroll
  for (int k = 0; k < N; ++k) x[k] = StochasticRounding::round(x[k], noise[k], role);
  store_once<N>(at<__nv_bfloat16>(to, i), pack<__nv_bfloat16>(x));
}

template <int N>
__device__ inline void put_param(const Array& to, int64_t i, const float (&x)[N]) {
  if (to.dtype == DType::f32) return store<N>(at<float>(to, i), pack<float>(x));
  if (to.dtype == DType::bf16) return store<N>(at<__nv_bfloat16>(to, i), pack<__nv_bfloat16>(x));
  store<N>(at<__half>(to, i), pack<__half>(x));
}

// Elements [i, i + N). kRounded: some state is bf16.
template <Kind kKind, bool kRounded, int N>
__device__ inline void update(const UpdateArgs& a, int64_t i) {
  const auto state_type = [](const Array& state) { return kRounded ? state.dtype : DType::f32; };
  AnyPack<N> grads, masters, ms, vs;
  grads.load(a.grad, a.grad.dtype, i);
  masters.load(a.master, state_type(a.master), i);
  if (a.m.data) ms.load(a.m, state_type(a.m), i);
  if constexpr (kHasV<kKind>) vs.load(a.v, state_type(a.v), i);
  StepFactors factors = a.factors;
  factors.grad = *a.grad_factor;
  if (factors.grad == 0) return;

  float g[N], p[N], m[N] = {}, v[N] = {};
  grads.get(a.grad.dtype, g);
  masters.get(state_type(a.master), p);
  if (a.m.data) ms.get(state_type(a.m), m);
  if constexpr (kHasV<kKind>) vs.get(state_type(a.v), v);
  uint64_t noise[N] = {};
#pragma unroll
  for (int k = 0; k < N; ++k) {
    p[k] = stepped<kKind>(factors, __fmul_rn(g[k], factors.grad), p[k], m[k], v[k]);
    if constexpr (kRounded) noise[k] = a.rounding.noise(a.first_index + i + k);
  }
  put_state(a.master, i, p, noise, StateRole::master);
  if (a.m.data) put_state(a.m, i, m, noise, StateRole::m);
  if constexpr (kHasV<kKind>) put_state(a.v, i, v, noise, StateRole::v);
  if (a.param.data) put_param(a.param, i, p);
}

template <Kind kKind, bool kRounded, int N>
__global__ void __launch_bounds__(kThreads) update_kernel(UpdateArgs a) {
  const int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (i + N <= a.count) {
    update<kKind, kRounded, N>(a, i);
  } else if constexpr (N > 1) {
    for (int64_t k = i; k < a.count; ++k) update<kKind, kRounded, 1>(a, k);
  }
}

template <Kind kKind, bool kRounded, int N>
void launch_width(cudaStream_t stream, const UpdateArgs& a) {
  const int64_t blocks = div_ceil<int64_t>(a.count, int64_t(kThreads) * N);
  ensure(blocks < int64_t(1) << 31, "[optimizer] master: got {} elements, expected less", a.count);
  update_kernel<kKind, kRounded, N><<<uint32_t(blocks), kThreads, 0, stream>>>(a);
  check_launch("optimizer_update");
}

// Groups fill 16 bytes of the narrowest state, where addresses allow that.
template <Kind kKind>
void launch(cudaStream_t stream, const UpdateArgs& a) {
  bool rounded = false, aligned = true;
  for (const Array* state : {&a.master, &a.m, &a.v}) rounded |= state->data && state->dtype == DType::bf16;
  for (const Array* array : {&a.grad, &a.master, &a.m, &a.v, &a.param}) {
    aligned &= reinterpret_cast<uintptr_t>(array->data) % 16 == 0;
  }
  if (rounded) {
    if (aligned) return launch_width<kKind, true, 8>(stream, a);
    return launch_width<kKind, true, 1>(stream, a);
  }
  if (aligned) return launch_width<kKind, false, 4>(stream, a);
  launch_width<kKind, false, 1>(stream, a);
}

}  // namespace

void optimizer_update(StreamRef stream, const OptimizerUpdate& op) {
  check_update(op);
  if (op.master.count() == 0) return;
  const auto array = [](const Tensor& t) { return Array{t.data, t.dtype}; };
  const UpdateArgs a{.factors = step_factors(op.hyper),
                     .grad = array(op.grad),
                     .master = array(op.master),
                     .m = array(op.m),
                     .v = array(op.v),
                     .param = array(op.param),
                     .grad_factor = op.grad_factor,
                     .count = op.master.count(),
                     .rounding = StochasticRounding(op.seed, op.hyper.step),
                     .first_index = op.first_index};
  switch (op.hyper.kind) {
    case Kind::adamw:
      return launch<Kind::adamw>(native(stream), a);
    case Kind::adam:
      return launch<Kind::adam>(native(stream), a);
    case Kind::sgd:
      return launch<Kind::sgd>(native(stream), a);
    case Kind::lion:
      return launch<Kind::lion>(native(stream), a);
  }
}

}  // namespace zeno::cuda
