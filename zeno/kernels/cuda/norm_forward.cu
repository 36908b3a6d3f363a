#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/norm.h"
#include "zeno/kernels/shape_checks.h"

// One pass: a row is read into registers as packed 16-byte words, its statistics are taken there, and the
// result is written. Up to 32 · kHeld words a warp (or a part of one) does it alone, up to 16 warps' worth a
// block; wider or misaligned rows go through memory again.
namespace zeno::cuda {
namespace {

constexpr int kHeld = 8;  // words of 16 bytes a thread holds

struct ForwardArgs {
  const void *x, *residual;
  void *sum, *y;
  int64_t x_stride, residual_stride, sum_stride, y_stride;
  const void *weight, *bias;
  bool float_weight;
  float *rstd, *mean;
  int64_t rstd_stride, mean_stride;
  uint32_t rows;
  int width;  // elements of a row
  int team;   // threads per row, kWarp only
  float eps;
};

__device__ inline void save_statistics(const ForwardArgs& a, int64_t row, float mean, float rstd,
                                       bool centered) {
  a.rstd[row * a.rstd_stride] = rstd;
  if (centered) a.mean[row * a.mean_stride] = mean;
}

// Mean (0 unless centered) and 1 / standard deviation of the packed row of a team.
template <bool kCentered, bool kWarp, class T, int N, int kGroups>
__device__ inline float2 statistics(const Pack<T, N> (&v)[kGroups], int lane, int team, int groups,
                                    const ForwardArgs& a) {
  __shared__ float slots[2][kMaxNormWarps];
  const float scale = 1.0f / float(a.width);
  float mean = 0;
  float x[N];
  if constexpr (kCentered) {
    float sum = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      unpack(v[g], x);
#pragma unroll
      for (int i = 0; i < N; ++i) sum += x[i];
    }
    mean = team_sum<kWarp>(sum, team, slots[0]) * scale;
  }
  float squares = 0;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    if (lane + g * team >= groups) continue;
    unpack(v[g], x);
#pragma unroll
    for (int i = 0; i < N; ++i) squares = fmaf(x[i] - mean, x[i] - mean, squares);
  }
  squares = team_sum<kWarp>(squares, team, slots[1]);
  return {mean, 1.0f / sqrtf(squares * scale + a.eps)};
}

template <bool kCentered, bool kWarp, int kGroups, class T>
__global__ void __launch_bounds__(kWarp ? 128 : 512) forward_kernel(ForwardArgs a) {
  constexpr int N = kVector<T>;
  const int team = team_threads<kWarp, kGroups>(a.team);
  const int lane = kWarp ? int(threadIdx.x) & (team - 1) : int(threadIdx.x);
  const int64_t row =
      kWarp ? blockIdx.x * (blockDim.x / uint32_t(team)) + threadIdx.x / uint32_t(team) : blockIdx.x;
  // The threads of a warp stay together for the sums: a team without a row holds zeros and writes nothing.
  const int groups = row < a.rows ? a.width / N : 0;
  const int start = lane * N;
  const T* x = static_cast<const T*>(a.x) + row * a.x_stride + start;

  Pack<T, N> v[kGroups] = {};
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    if (lane + g * team < groups) v[g] = load_once<N>(x + g * team * N);
  }
  if (a.residual) {
    const T* residual = static_cast<const T*>(a.residual) + row * a.residual_stride + start;
    T* sum = static_cast<T*>(a.sum) + row * a.sum_stride + start;
    Pack<T, N> r[kGroups] = {};
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if (lane + g * team < groups) r[g] = load_once<N>(residual + g * team * N);
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      float p[N], q[N];
      unpack(v[g], p);
      unpack(r[g], q);
#pragma unroll
      for (int i = 0; i < N; ++i) p[i] += q[i];
      v[g] = pack<T>(p);  // the norm sees the rounded sum, as backward will
      if (lane + g * team < groups) store<N>(sum + g * team * N, v[g]);
    }
  }

  const float2 s = statistics<kCentered, kWarp>(v, lane, team, groups, a);
  if (lane == 0 && groups > 0) save_statistics(a, row, s.x, s.y, kCentered);
  T* y = static_cast<T*>(a.y) + row * a.y_stride + start;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    if (lane + g * team >= groups) continue;
    const int64_t column = (lane + g * team) * N;
    float p[N], w[N], b[N] = {};
    load_weight<T>(a.weight, a.float_weight, column, w);
    if (a.bias) load_weight<T>(a.bias, a.float_weight, column, b);
    unpack(v[g], p);
#pragma unroll
    for (int i = 0; i < N; ++i) p[i] = fmaf((p[i] - s.x) * s.y, w[i], b[i]);
    store<N>(y + g * team * N, pack<T>(p));
  }
}

// Any width and alignment: a block per row that reads it again for each statistic. A thread reads back
// only what it wrote itself.
template <bool kCentered, class T>
__global__ void __launch_bounds__(256) forward_any_kernel(ForwardArgs a) {
  __shared__ float slots[2][kMaxNormWarps];
  const int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(a.x) + row * a.x_stride;
  if (a.residual) {
    const T* residual = static_cast<const T*>(a.residual) + row * a.residual_stride;
    T* sum = static_cast<T*>(a.sum) + row * a.sum_stride;
    for (int i = int(threadIdx.x); i < a.width; i += 256) {
      sum[i] = from_float<T>(to_float(x[i]) + to_float(residual[i]));
    }
    x = sum;
  }
  float mean = 0;
  if constexpr (kCentered) {
    float sum = 0;
    for (int i = int(threadIdx.x); i < a.width; i += 256) sum += to_float(x[i]);
    mean = team_sum<false>(sum, 256, slots[0]) / float(a.width);
  }
  float squares = 0;
  for (int i = int(threadIdx.x); i < a.width; i += 256) {
    const float v = to_float(x[i]) - mean;
    squares = fmaf(v, v, squares);
  }
  squares = team_sum<false>(squares, 256, slots[1]);
  const float rstd = 1.0f / sqrtf(squares / float(a.width) + a.eps);
  if (threadIdx.x == 0) save_statistics(a, row, mean, rstd, kCentered);
  T* y = static_cast<T*>(a.y) + row * a.y_stride;
  for (int i = int(threadIdx.x); i < a.width; i += 256) {
    const float shift = a.bias ? weight_at<T>(a.bias, a.float_weight, i) : 0;
    y[i] =
        from_float<T>(fmaf((to_float(x[i]) - mean) * rstd, weight_at<T>(a.weight, a.float_weight, i), shift));
  }
}

ForwardArgs arguments(const NormForward& op) {
  return {.x = op.x.data,
          .residual = op.residual.data,
          .sum = op.sum.data,
          .y = op.y.data,
          .x_stride = op.x.stride,
          .residual_stride = op.residual.stride,
          .sum_stride = op.sum.stride,
          .y_stride = op.y.stride,
          .weight = op.weight.data,
          .bias = op.bias.data,
          .float_weight = op.weight.dtype == DType::f32,
          .rstd = pointer<float>(op.rstd),
          .mean = pointer<float>(op.mean),
          .rstd_stride = op.rstd.stride,
          .mean_stride = op.mean.stride,
          .rows = uint32_t(op.x.rows),
          .width = int(op.x.cols),
          .team = 32,
          .eps = op.eps};
}

template <bool kCentered, class T>
void launch(cudaStream_t stream, const NormForward& op) {
  ForwardArgs a = arguments(op);
  bool vector = a.width % kVector<T> == 0;
  for (const Tensor* t : {&op.x, &op.residual, &op.sum, &op.y, &op.weight, &op.bias}) {
    vector = vector && rows_aligned(*t);
  }
  const int groups = a.width / kVector<T>;
  if (!vector || groups > 512 * kHeld) {
    forward_any_kernel<kCentered, T><<<a.rows, 256, 0, stream>>>(a);
  } else if (groups <= 32) {
    while (a.team / 2 >= groups && a.team > 1) a.team /= 2;
    const uint32_t blocks = div_ceil(a.rows, uint32_t(128 / a.team));
    forward_kernel<kCentered, true, 1, T><<<blocks, 128, 0, stream>>>(a);
  } else if (groups <= 32 * kHeld / 2) {
    forward_kernel<kCentered, true, kHeld / 2, T><<<div_ceil(a.rows, 4u), 128, 0, stream>>>(a);
  } else if (groups <= 32 * kHeld) {
    forward_kernel<kCentered, true, kHeld, T><<<div_ceil(a.rows, 4u), 128, 0, stream>>>(a);
  } else {
    const int threads = round_up(div_ceil(groups, kHeld), 32);
    forward_kernel<kCentered, false, kHeld, T><<<a.rows, threads, 0, stream>>>(a);
  }
  check_launch("norm_forward");
}

template <bool kCentered>
void norm_forward(StreamRef stream, const NormForward& op) {
  check_shapes(op, kCentered);
  if (op.x.count() == 0) return;
  dispatch_device(op.x.dtype, [&]<class T>() { launch<kCentered, T>(native(stream), op); });
}

}  // namespace

void rmsnorm_forward(StreamRef stream, const NormForward& op) { norm_forward<false>(stream, op); }
void layernorm_forward(StreamRef stream, const NormForward& op) { norm_forward<true>(stream, op); }

}  // namespace zeno::cuda
