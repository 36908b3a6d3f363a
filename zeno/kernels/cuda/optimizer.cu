#include "zeno/kernels/optimizer.h"

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/optimizer_rule.h"

namespace zeno::cuda {
namespace {

constexpr int kThreads = 256;

// How states are kept: all as fp32; so but for masters, which are split; or as their types say.
enum class Kept { plain, split, any };

// Elements [i, i + N).
template <Kind kKind, Kept kKept, int N>
__device__ inline void update(const UpdateArgs& a, int64_t i) {
  // With types that the compiler knows, where they are fixed.
  const auto typed = [](const Array& state, DType fixed) {
    return Array{state.data, kKept == Kept::any ? state.dtype : fixed};
  };
  const Array master = typed(a.master, kKept == Kept::split ? DType::i16 : DType::f32);
  const Array first = typed(a.m, DType::f32), second = typed(a.v, DType::f32);
  const bool split = master.dtype == DType::i16;
  AnyPack<N> grads, masters, copies, ms, vs;
  grads.load(a.grad, a.grad.dtype, i);
  masters.load(master, master.dtype, i);
  if (split) copies.load(a.param, DType::bf16, i);
  if (first.data) ms.load(first, first.dtype, i);
  if constexpr (kHasV<kKind>) vs.load(second, second.dtype, i);
  StepFactors factors = a.factors;
  factors.grad = *a.grad_factor;
  float g[N], p[N], m[N] = {}, v[N] = {};
  if (split) {
    join(copies, masters, p);
  } else {
    masters.get(master.dtype, p);
  }
  if (factors.grad == 0) {
    if (a.param.data && !split) put_param(a.param, i, p);
    return;
  }
  grads.get(a.grad.dtype, g);
  if (first.data) ms.get(first.dtype, m);
  if constexpr (kHasV<kKind>) vs.get(second.dtype, v);
  uint32_t noise[N] = {};
#pragma unroll
  for (int k = 0; k < N; ++k) {
    p[k] = stepped<kKind>(factors, __fmul_rn(g[k], factors.grad), p[k], m[k], v[k]);
    if constexpr (kKept == Kept::any) noise[k] = a.rounding.noise(a.first_index + i + k);
  }
  put_state(master, i, p, noise, StateRole::master);
  if (first.data) put_state(first, i, m, noise, StateRole::m);
  if constexpr (kHasV<kKind>) put_state(second, i, v, noise, StateRole::v);
  if (a.param.data) put_param(a.param, i, p);
}

template <Kind kKind, Kept kKept, int N>
__global__ void __launch_bounds__(kThreads) update_kernel(UpdateArgs a) {
  const int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (i + N <= a.count) {
    update<kKind, kKept, N>(a, i);
  } else if constexpr (N > 1) {
    for (int64_t k = i; k < a.count; ++k) update<kKind, kKept, 1>(a, k);
  }
}

template <Kind kKind, Kept kKept, int N>
void launch_width(cudaStream_t stream, const UpdateArgs& a) {
  const int64_t blocks = div_ceil<int64_t>(a.count, int64_t(kThreads) * N);
  ensure(blocks < int64_t(1) << 31, "[optimizer] master: got {} elements, expected less", a.count);
  update_kernel<kKind, kKept, N><<<uint32_t(blocks), kThreads, 0, stream>>>(a);
  check_launch("optimizer_update");
}

// Groups fill 16 bytes of the narrowest moment, where addresses allow that.
template <Kind kKind>
void launch(cudaStream_t stream, const UpdateArgs& a) {
  bool rounded = false, aligned = true;
  for (const Array* state : {&a.master, &a.m, &a.v}) rounded |= state->data && state->dtype == DType::bf16;
  for (const Array* array : {&a.grad, &a.master, &a.m, &a.v, &a.param}) {
    aligned &= reinterpret_cast<uintptr_t>(array->data) % 16 == 0;
  }
  if (rounded) {
    if (aligned) return launch_width<kKind, Kept::any, 8>(stream, a);
    return launch_width<kKind, Kept::any, 1>(stream, a);
  }
  if (a.master.dtype == DType::i16) {
    if (aligned) return launch_width<kKind, Kept::split, 4>(stream, a);
    return launch_width<kKind, Kept::split, 1>(stream, a);
  }
  if (aligned) return launch_width<kKind, Kept::plain, 4>(stream, a);
  launch_width<kKind, Kept::plain, 1>(stream, a);
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
  if (op.m.dtype == DType::u8 || op.v.dtype == DType::u8) {
    return launch_cell_update(native(stream), op.hyper.kind, a);
  }
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
