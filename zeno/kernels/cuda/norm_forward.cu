#include <algorithm>

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/norm.h"

// One pass: a team of threads owns fixed columns and keeps their weights in registers. It walks over the
// vectors of its block with the next ones already on their way to shared memory, takes the statistics of one
// in registers and writes the result. Up to 32 words of 16 bytes a part of a warp does it alone, up to 2048 a
// block; wider or misaligned vectors go through memory again.
namespace zeno::cuda {
namespace {

constexpr int kWarpThreads = 256;  // block size of teams inside a warp

// Vectors on their way to a block; wide ones fill shared memory sooner.
template <int kGroups>
inline constexpr int kStages = kGroups == 1   ? 6
                               : kGroups == 2 ? 3
                                              : 2;

enum Operand : int { kX, kResidual };

struct ForwardArgs {
  const void *x, *residual;
  void *sum, *y;
  int64_t x_stride, residual_stride, sum_stride, y_stride;
  const void *weight, *bias;
  bool float_weight;
  float *rstd, *mean;
  int64_t rstd_stride, mean_stride;
  uint32_t vectors, inner;
  int width;    // elements of a vector
  float scale;  // 1 / width
  int team;     // threads per vector, kWarp only
  float eps;
};

__device__ inline void save_statistics(const ForwardArgs& a, int64_t row, int64_t head, float mean,
                                       float rstd, bool centered) {
  a.rstd[row * a.rstd_stride + head] = rstd;
  if (centered) a.mean[row * a.mean_stride + head] = mean;
}

template <class T, int kGroups>
__device__ inline void fetch(const ForwardArgs& a, const NormRing<T, kGroups>& ring, int stage,
                             uint32_t vector, int lane, int team) {
  constexpr int N = kVector<T>;
  if (vector < a.vectors) {
    const NormPlace at(vector, a.inner);
    const T* x = static_cast<const T*>(a.x) + at.row * a.x_stride + at.head * a.width;
    const T* residual = static_cast<const T*>(a.residual) + at.row * a.residual_stride + at.head * a.width;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int column = (lane + g * team) * N;
      if (column >= a.width) continue;
      ring.copy(stage, kX, g, x + column);
      if (a.residual) ring.copy(stage, kResidual, g, residual + column);
    }
  }
  __pipeline_commit();
}

// Mean (0 unless centered) and 1 / standard deviation of the packed vector of a team, `width` elements of
// which exist. `parity` says which slots were used last.
template <bool kCentered, bool kWarp, class T, int N, int kGroups>
__device__ inline float2 statistics(const Pack<T, N> (&v)[kGroups], int lane, int team, int width,
                                    const ForwardArgs& a, int& parity) {
  __shared__ float slots[2][kMaxNormWarps];
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
    mean = team_sum<kWarp>(sum, team, slots[parity ^= 1]) * a.scale;
  }
  float squares = 0;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    if ((lane + g * team) * N >= width) continue;
    unpack(v[g], x);
#pragma unroll
    for (int i = 0; i < N; ++i) squares = fmaf(x[i] - mean, x[i] - mean, squares);
  }
  squares = team_sum<kWarp>(squares, team, slots[parity ^= 1]);
  return {mean, rsqrtf(fmaf(squares, a.scale, a.eps))};
}

// This thread's words of a vector: x, or x + residual as rounded, which backward will see, too. The sum is
// written. Words that do not exist are 0.
template <class T, int kGroups>
__device__ inline void take(const ForwardArgs& a, const NormRing<T, kGroups>& ring, int stage,
                            const NormPlace& at, int lane, int team, int width,
                            Pack<T, kVector<T>> (&v)[kGroups]) {
  constexpr int N = kVector<T>;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int column = (lane + g * team) * N;
    if (column >= width) continue;
    v[g] = *ring.at(stage, kX, g);
    if (!a.residual) continue;
    float p[N], q[N];
    unpack(v[g], p);
    unpack(*ring.at(stage, kResidual, g), q);
#pragma unroll
    for (int i = 0; i < N; ++i) p[i] += q[i];
    v[g] = pack<T>(p);
    store<N>(static_cast<T*>(a.sum) + at.row * a.sum_stride + at.head * a.width + column, v[g]);
  }
}

template <bool kCentered, bool kWarp, int kGroups, class T>
__global__ void __launch_bounds__(kWarp ? kWarpThreads : 512, kGroups > 1 ? 1
                                                              : kWarp     ? 4
                                                                          : 2) forward_kernel(ForwardArgs a) {
  constexpr int N = kVector<T>, kDepth = kStages<kGroups>;
  extern __shared__ uint4 shared[];
  const int team = kWarp ? a.team : int(blockDim.x);
  const int lane = kWarp ? int(threadIdx.x) & (team - 1) : int(threadIdx.x);
  const uint32_t teams = kWarp ? uint32_t(kWarpThreads / team) : 1;
  const uint32_t step = gridDim.x * teams;
  const uint32_t first = blockIdx.x * teams;
  const uint32_t offset = kWarp ? threadIdx.x / uint32_t(team) : 0;
  const NormRing<T, kGroups> ring(shared, a.residual ? 2 : 1);
#pragma unroll
  for (int s = 0; s < kDepth; ++s) fetch(a, ring, s, first + offset + s * step, lane, team);
  float w[kGroups][N] = {}, b[kGroups][N] = {};
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int column = (lane + g * team) * N;
    if (column >= a.width) continue;
    load_weight<T>(a.weight, a.float_weight, column, w[g]);
    if (kCentered && a.bias) load_weight<T>(a.bias, a.float_weight, column, b[g]);
  }
  int parity = 0, stage = 0;
  // All threads of a block make the same number of rounds: the sums need them together.
  for (uint32_t base = first; base < a.vectors; base += step) {
    const uint32_t vector = base + offset;
    const int width = vector < a.vectors ? a.width : 0;
    const NormPlace at(vector, a.inner);
    Pack<T, N> v[kGroups] = {};
    __pipeline_wait_prior(kDepth - 1);
    take(a, ring, stage, at, lane, team, width, v);
    fetch(a, ring, stage, vector + kDepth * step, lane, team);
    stage = stage + 1 == kDepth ? 0 : stage + 1;
    const float2 s = statistics<kCentered, kWarp>(v, lane, team, width, a, parity);
    if (lane == 0 && width > 0) save_statistics(a, at.row, at.head, s.x, s.y, kCentered);
    T* y = static_cast<T*>(a.y) + at.row * a.y_stride + at.head * a.width;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int column = (lane + g * team) * N;
      if (column >= width) continue;
      float p[N];
      unpack(v[g], p);
#pragma unroll
      for (int i = 0; i < N; ++i) p[i] = fmaf((p[i] - s.x) * s.y, w[g][i], b[g][i]);
      store<N>(y + column, pack<T>(p));
    }
  }
}

// Any width and alignment: a block per vector that reads it again for each statistic. A thread reads back
// only what it wrote itself.
template <bool kCentered, class T>
__global__ void __launch_bounds__(256) forward_any_kernel(ForwardArgs a) {
  __shared__ float slots[2][kMaxNormWarps];
  const int64_t row = blockIdx.x / a.inner, head = blockIdx.x % a.inner;
  const int64_t start = head * a.width;
  const T* x = static_cast<const T*>(a.x) + row * a.x_stride + start;
  if (a.residual) {
    const T* residual = static_cast<const T*>(a.residual) + row * a.residual_stride + start;
    T* sum = static_cast<T*>(a.sum) + row * a.sum_stride + start;
    for (int i = int(threadIdx.x); i < a.width; i += 256) {
      sum[i] = from_float<T>(to_float(x[i]) + to_float(residual[i]));
    }
    x = sum;
  }
  float mean = 0;
  if constexpr (kCentered) {
    float sum = 0;
    for (int i = int(threadIdx.x); i < a.width; i += 256) sum += to_float(x[i]);
    mean = team_sum<false>(sum, 256, slots[0]) * a.scale;
  }
  float squares = 0;
  for (int i = int(threadIdx.x); i < a.width; i += 256) {
    const float v = to_float(x[i]) - mean;
    squares = fmaf(v, v, squares);
  }
  squares = team_sum<false>(squares, 256, slots[1]);
  const float rstd = rsqrtf(fmaf(squares, a.scale, a.eps));
  if (threadIdx.x == 0) save_statistics(a, row, head, mean, rstd, kCentered);
  T* y = static_cast<T*>(a.y) + row * a.y_stride + start;
  for (int i = int(threadIdx.x); i < a.width; i += 256) {
    const float shift = a.bias ? weight_at<T>(a.bias, a.float_weight, i) : 0;
    y[i] =
        from_float<T>(fmaf((to_float(x[i]) - mean) * rstd, weight_at<T>(a.weight, a.float_weight, i), shift));
  }
}

void check_operands(const NormForward& op, bool centered) {
  const Tensor& x = op.x;
  check_norm_weight(op.weight, x, op.inner);
  if (op.bias) check_norm_shape("bias", op.bias, 1, x.cols / op.inner, op.weight.dtype);
  if (op.residual) check_norm_shape("residual", op.residual, x.rows, x.cols, x.dtype);
  if (op.residual) check_norm_shape("sum", op.sum, x.rows, x.cols, x.dtype);
  check_norm_shape("y", op.y, x.rows, x.cols, x.dtype);
  check_norm_shape("rstd", op.rstd, x.rows, op.inner, DType::f32);
  if (centered) check_norm_shape("mean", op.mean, x.rows, op.inner, DType::f32);
  ensure(centered || !op.bias, "[norm] bias: RMSNorm has none");
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
          .vectors = uint32_t(op.x.rows * op.inner),
          .inner = uint32_t(op.inner),
          .width = int(op.x.cols / op.inner),
          .scale = 1.0f / float(op.x.cols / op.inner),
          .team = 32,
          .eps = op.eps};
}

template <bool kCentered, bool kWarp, int kGroups, class T>
void launch_rows(cudaStream_t stream, const ForwardArgs& a) {
  constexpr auto kernel = forward_kernel<kCentered, kWarp, kGroups, T>;
  constexpr int kBytes = kStages<kGroups> * kGroups * 16;  // of shared memory, per thread and tensor
  static DeviceOnce allowed;
  allowed([&] {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 2 * 512 * kBytes),
          "cudaFuncSetAttribute");
  });
  const int words = a.width / kVector<T>;
  const int threads = kWarp ? kWarpThreads : round_up(div_ceil(words, kGroups), 32);
  const int64_t teams = kWarp ? kWarpThreads / a.team : 1;
  const int64_t blocks = std::min(div_ceil<int64_t>(a.vectors, teams), kNormThreads / threads);
  kernel<<<uint32_t(blocks), threads, (a.residual ? 2 : 1) * threads * kBytes, stream>>>(a);
}

template <bool kCentered, class T>
void launch(cudaStream_t stream, const NormForward& op) {
  ForwardArgs a = arguments(op);
  bool vector = a.width % kVector<T> == 0;
  for (const Tensor* t : {&op.x, &op.residual, &op.sum, &op.y, &op.weight, &op.bias}) {
    vector = vector && rows_aligned(*t);
  }
  const int words = a.width / kVector<T>;
  if (!vector || words > 2048) {
    forward_any_kernel<kCentered, T><<<a.vectors, 256, 0, stream>>>(a);
  } else if (words <= 32) {
    while (a.team / 2 >= words && a.team > 1) a.team /= 2;
    launch_rows<kCentered, true, 1, T>(stream, a);
  } else if (words <= 512) {
    launch_rows<kCentered, false, 1, T>(stream, a);
  } else if (words <= 1024) {
    launch_rows<kCentered, false, 2, T>(stream, a);
  } else {
    launch_rows<kCentered, false, 4, T>(stream, a);
  }
  check_launch("norm_forward");
}

template <bool kCentered>
void norm_forward(StreamRef stream, const NormForward& op) {
  check_operands(op, kCentered);
  if (op.x.count() == 0) return;
  dispatch_device(op.x.dtype, [&]<class T>() { launch<kCentered, T>(native(stream), op); });
}

}  // namespace

void rmsnorm_forward(StreamRef stream, const NormForward& op) { norm_forward<false>(stream, op); }
void layernorm_forward(StreamRef stream, const NormForward& op) { norm_forward<true>(stream, op); }

}  // namespace zeno::cuda
