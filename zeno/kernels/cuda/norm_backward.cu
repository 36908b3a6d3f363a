#include <algorithm>

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/column_sums.h"
#include "zeno/kernels/cuda/norm.h"
#include "zeno/kernels/shape_checks.h"

// With n = (x - mean) · rstd and g = dy · weight: dx = rstd · (g - mean(g) - n · mean(g · n)) + dresidual,
// the middle term for LayerNorm only; dweight = Σ dy · n and dbias = Σ dy over all vectors.
//
// One pass: a team of threads owns fixed columns, walks over the vectors of its block with the next one
// already on its way, and keeps its part of dweight and dbias in registers. Blocks leave partial sums in
// scratch; their number follows from the shape alone, so the sums have the same bits on every device.
namespace zeno::cuda {
namespace {

constexpr int kWarpThreads = 256;  // block size of teams inside a warp
constexpr int64_t kTeamThreads =
    131072;  // threads over all blocks: 4 blocks of 256 for each of 128 processors

struct BackwardArgs {
  const void *x, *weight, *dy, *dresidual;
  void* dx;
  int64_t x_stride, dy_stride, dresidual_stride, dx_stride;
  bool float_weight;
  const float *rstd, *mean;
  int64_t rstd_stride, mean_stride;
  float *dweight, *dbias;  // partial sums [blocks, width]; null: not wanted
  uint32_t vectors, inner;
  int width;  // elements of a vector
  int team;   // threads per vector, kWarp only
};

// What a thread needs of one vector, as it lies in memory.
template <class T, int kGroups>
struct Slice {
  static constexpr int N = kVector<T>;
  Pack<T, N> x[kGroups], dy[kGroups];
  float mean, rstd;
  int groups;  // 0: there is no such vector

  __device__ void fetch(const BackwardArgs& a, uint32_t vector, int lane, int team, bool centered) {
    groups = 0;
    mean = rstd = 0;
    if (vector >= a.vectors) return;
    groups = a.width / N;
    const int64_t row = vector / a.inner, head = vector % a.inner;
    const T* x_row = static_cast<const T*>(a.x) + row * a.x_stride + head * a.width;
    const T* dy_row = static_cast<const T*>(a.dy) + row * a.dy_stride + head * a.width;
    rstd = a.rstd[row * a.rstd_stride + head];
    if (centered) mean = a.mean[row * a.mean_stride + head];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int group = lane + g * team;
      if (group >= groups) continue;
      x[g] = load_once<N>(x_row + group * N);
      dy[g] = load_once<N>(dy_row + group * N);
    }
  }
};

// Running sums of a thread's columns.
template <bool kCentered, int kGroups, int N>
struct Columns {
  float dweight[kGroups][N] = {};
  float dbias[kCentered ? kGroups : 1][N] = {};
};

// Adds the vector to the columns and returns the team's Σ g and Σ g · n.
template <bool kCentered, class T, int kGroups>
__device__ inline float2 gather_sums(const BackwardArgs& a, const Slice<T, kGroups>& s, int lane, int team,
                                     Columns<kCentered, kGroups, kVector<T>>& columns) {
  constexpr int N = kVector<T>;
  float2 sums = {0, 0};
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int group = lane + g * team;
    if (group >= s.groups) continue;
    float x[N], dy[N], w[N];
    load_weight<T>(a.weight, a.float_weight, group * N, w);
    unpack(s.x[g], x);
    unpack(s.dy[g], dy);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float n = (x[i] - s.mean) * s.rstd;
      const float grad = dy[i] * w[i];
      if constexpr (kCentered) sums.x += grad;
      sums.y = fmaf(grad, n, sums.y);
      columns.dweight[g][i] = fmaf(dy[i], n, columns.dweight[g][i]);
      if constexpr (kCentered) columns.dbias[g][i] += dy[i];
    }
  }
  return sums;
}

template <bool kCentered, class T, int kGroups>
__device__ inline void write_dx(const BackwardArgs& a, const Slice<T, kGroups>& s, uint32_t vector, int lane,
                                int team, const Pack<T, kVector<T>> (&along)[kGroups], float2 sums) {
  constexpr int N = kVector<T>;
  const float mean_g = sums.x / float(a.width), mean_gn = sums.y / float(a.width);
  const int64_t row = vector / a.inner, head = vector % a.inner;
  T* dx = static_cast<T*>(a.dx) + row * a.dx_stride + head * a.width;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int group = lane + g * team;
    if (group >= s.groups) continue;
    float x[N], dy[N], w[N], r[N];
    load_weight<T>(a.weight, a.float_weight, group * N, w);
    unpack(s.x[g], x);
    unpack(s.dy[g], dy);
    unpack(along[g], r);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float n = (x[i] - s.mean) * s.rstd;
      const float grad = kCentered ? dy[i] * w[i] - mean_g : dy[i] * w[i];
      r[i] = fmaf(fmaf(-n, mean_gn, grad), s.rstd, r[i]);
    }
    store<N>(dx + group * N, pack<T>(r));
  }
}

// The partial sums of a block. Teams of a warp meet in shared memory and are added in order.
template <bool kWarp, int kGroups, int N>
__device__ inline void write_partial(const float (&sums)[kGroups][N], float* partial, int lane, int team,
                                     int width) {
  partial += int64_t(blockIdx.x) * width;
  if constexpr (!kWarp) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int group = lane + g * team;
      if (group * N < width) store<N>(partial + group * N, pack<float>(sums[g]));
    }
  } else {
    __shared__ float tile[kWarpThreads * N];
    __syncthreads();  // a second call may find readers of the first
#pragma unroll
    for (int i = 0; i < N; ++i) tile[threadIdx.x * N + i] = sums[0][i];
    __syncthreads();
    for (int column = int(threadIdx.x); column < width; column += kWarpThreads) {
      float sum = 0;
      for (int t = 0; t < kWarpThreads / team; ++t) sum += tile[t * team * N + column];
      partial[column] = sum;
    }
  }
}

template <bool kCentered, bool kWarp, int kGroups, class T>
__global__ void __launch_bounds__(kWarp ? kWarpThreads : 512) backward_kernel(BackwardArgs a) {
  constexpr int N = kVector<T>;
  // Without registers to spare, other warps have to hide the loads.
  constexpr bool kPrefetch = kGroups <= 2;
  __shared__ float2 slots[2][kMaxNormWarps];
  const int team = kWarp ? a.team : int(blockDim.x);
  const int lane = kWarp ? int(threadIdx.x) & (team - 1) : int(threadIdx.x);
  const uint32_t teams = kWarp ? uint32_t(kWarpThreads / team) : 1;
  const uint32_t step = gridDim.x * teams;
  const uint32_t first = blockIdx.x * teams;
  const uint32_t offset = kWarp ? threadIdx.x / uint32_t(team) : 0;
  Columns<kCentered, kGroups, N> columns;
  Slice<T, kGroups> current, next;
  current.fetch(a, first + offset, lane, team, kCentered);
  int parity = 0;
  // All threads of a block make the same number of rounds: the sums need them together.
  for (uint32_t base = first; base < a.vectors; base += step, parity ^= 1) {
    const uint32_t vector = base + offset;
    Pack<T, N> along[kGroups] = {};
    if (a.dresidual) {
      const int64_t row = vector / a.inner, head = vector % a.inner;
      const T* from = static_cast<const T*>(a.dresidual) + row * a.dresidual_stride + head * a.width;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        if (lane + g * team < current.groups) along[g] = load_once<N>(from + (lane + g * team) * N);
      }
    }
    if constexpr (kPrefetch) next.fetch(a, vector + step, lane, team, kCentered);
    float2 sums = gather_sums<kCentered>(a, current, lane, team, columns);
    sums = team_sum<kWarp>(sums, team, slots[parity]);
    write_dx<kCentered>(a, current, vector, lane, team, along, sums);
    if constexpr (!kPrefetch) next.fetch(a, vector + step, lane, team, kCentered);
    current = next;
  }
  if (a.dweight) write_partial<kWarp>(columns.dweight, a.dweight, lane, team, a.width);
  if constexpr (kCentered) {
    if (a.dbias) write_partial<kWarp>(columns.dbias, a.dbias, lane, team, a.width);
  }
}

// Any width and alignment, in two kernels. First the columns, because dx may overwrite dy: a block sums 32
// columns of every gridDim.y-th vector.
template <bool kCentered, class T>
__global__ void __launch_bounds__(256) columns_any_kernel(BackwardArgs a) {
  __shared__ float2 tile[8][32];
  const int column = int(blockIdx.x * 32 + threadIdx.x);
  float2 sums = {0, 0};
  for (uint32_t v = blockIdx.y * 8 + threadIdx.y; column < a.width && v < a.vectors; v += gridDim.y * 8) {
    const int64_t row = v / a.inner, head = v % a.inner, at = head * a.width + column;
    const float dy = to_float(static_cast<const T*>(a.dy)[row * a.dy_stride + at]);
    const float mean = kCentered ? a.mean[row * a.mean_stride + head] : 0;
    const float x = to_float(static_cast<const T*>(a.x)[row * a.x_stride + at]);
    sums.x = fmaf(dy, (x - mean) * a.rstd[row * a.rstd_stride + head], sums.x);
    sums.y += dy;
  }
  tile[threadIdx.y][threadIdx.x] = sums;
  __syncthreads();
  if (threadIdx.y > 0 || column >= a.width) return;
  for (int y = 1; y < 8; ++y) {
    sums.x += tile[y][threadIdx.x].x;
    sums.y += tile[y][threadIdx.x].y;
  }
  if (a.dweight) a.dweight[int64_t(blockIdx.y) * a.width + column] = sums.x;
  if (kCentered && a.dbias) a.dbias[int64_t(blockIdx.y) * a.width + column] = sums.y;
}

template <bool kCentered, class T>
__global__ void __launch_bounds__(256) dx_any_kernel(BackwardArgs a) {
  __shared__ float2 slots[kMaxNormWarps];
  const int64_t row = blockIdx.x / a.inner, head = blockIdx.x % a.inner, start = head * a.width;
  const T* x = static_cast<const T*>(a.x) + row * a.x_stride + start;
  const T* dy = static_cast<const T*>(a.dy) + row * a.dy_stride + start;
  const T* along =
      a.dresidual ? static_cast<const T*>(a.dresidual) + row * a.dresidual_stride + start : nullptr;
  T* dx = static_cast<T*>(a.dx) + row * a.dx_stride + start;
  const float rstd = a.rstd[row * a.rstd_stride + head];
  const float mean = kCentered ? a.mean[row * a.mean_stride + head] : 0;
  float2 sums = {0, 0};
  for (int i = int(threadIdx.x); i < a.width; i += 256) {
    const float grad = to_float(dy[i]) * weight_at<T>(a.weight, a.float_weight, i);
    if (kCentered) sums.x += grad;
    sums.y = fmaf(grad, (to_float(x[i]) - mean) * rstd, sums.y);
  }
  sums = team_sum<false>(sums, 256, slots);
  const float mean_g = sums.x / float(a.width), mean_gn = sums.y / float(a.width);
  for (int i = int(threadIdx.x); i < a.width; i += 256) {
    const float n = (to_float(x[i]) - mean) * rstd;
    const float grad = to_float(dy[i]) * weight_at<T>(a.weight, a.float_weight, i) - mean_g;
    dx[i] = from_float<T>(fmaf(fmaf(-n, mean_gn, grad), rstd, along ? to_float(along[i]) : 0.0f));
  }
}

// How the vectors are cut. A function of the shape and the alignment only.
struct Cut {
  bool any = false;     // the kernels for every width and alignment
  int team = 32;        // threads per vector
  int groups = 1;       // 16-byte words per thread
  uint32_t blocks = 1;  // that leave partial sums
};

Cut cut_of(const NormBackward& op, int64_t vectors, int width) {
  bool vector = size_t(width) * size_of(op.x.dtype) % 16 == 0;
  for (const Tensor* t : {&op.x, &op.dy, &op.dresidual, &op.dx, &op.weight}) {
    vector = vector && rows_aligned(*t);
  }
  const int words = int(size_t(width) * size_of(op.x.dtype) / 16);
  Cut cut;
  if (!vector || words > 512 * 4) {
    cut.any = true;
    cut.blocks = uint32_t(std::min<int64_t>(div_ceil<int64_t>(vectors, 8), 64));
  } else if (words <= 32) {
    while (cut.team / 2 >= words && cut.team > 1) cut.team /= 2;
    const int64_t per_block = kWarpThreads / cut.team;
    cut.blocks = uint32_t(std::min(div_ceil(vectors, per_block), kTeamThreads / kWarpThreads));
  } else {
    while (words > 512 * cut.groups) cut.groups *= 2;
    cut.team = round_up(div_ceil(words, cut.groups), 32);
    cut.blocks = uint32_t(std::min<int64_t>(vectors, kTeamThreads / cut.team));
  }
  return cut;
}

template <bool kCentered, class T>
void launch(cudaStream_t stream, const BackwardArgs& a, const Cut& cut) {
  if (cut.any) {
    if (a.dweight || a.dbias) {
      const dim3 grid(div_ceil(uint32_t(a.width), 32u), cut.blocks);
      columns_any_kernel<kCentered, T><<<grid, dim3(32, 8), 0, stream>>>(a);
    }
    dx_any_kernel<kCentered, T><<<a.vectors, 256, 0, stream>>>(a);
  } else if (cut.team < 32 || a.width / kVector<T> <= 32) {
    backward_kernel<kCentered, true, 1, T><<<cut.blocks, kWarpThreads, 0, stream>>>(a);
  } else if (cut.groups == 1) {
    backward_kernel<kCentered, false, 1, T><<<cut.blocks, cut.team, 0, stream>>>(a);
  } else if (cut.groups == 2) {
    backward_kernel<kCentered, false, 2, T><<<cut.blocks, cut.team, 0, stream>>>(a);
  } else {
    backward_kernel<kCentered, false, 4, T><<<cut.blocks, cut.team, 0, stream>>>(a);
  }
  check_launch("norm_backward");
}

template <bool kCentered>
void norm_backward(StreamRef stream, const NormBackward& op) {
  check_shapes(op, kCentered);
  if (op.x.count() == 0) return;
  const int64_t vectors = op.x.rows * op.inner;
  const int width = int(op.x.cols / op.inner);
  const Cut cut = cut_of(op, vectors, width);
  const std::span<std::byte> room = scratch(stream);
  ensure(room.size() >= 2 * sizeof(float) * size_t(cut.blocks) * size_t(width),
         "[norm] scratch: got {} bytes, expected {}", room.size(),
         2 * sizeof(float) * size_t(cut.blocks) * size_t(width));
  float* partial = reinterpret_cast<float*>(room.data());
  const BackwardArgs a{.x = op.x.data,
                       .weight = op.weight.data,
                       .dy = op.dy.data,
                       .dresidual = op.dresidual.data,
                       .dx = op.dx.data,
                       .x_stride = op.x.stride,
                       .dy_stride = op.dy.stride,
                       .dresidual_stride = op.dresidual.stride,
                       .dx_stride = op.dx.stride,
                       .float_weight = op.weight.dtype == DType::f32,
                       .rstd = pointer<float>(op.rstd),
                       .mean = pointer<float>(op.mean),
                       .rstd_stride = op.rstd.stride,
                       .mean_stride = op.mean.stride,
                       .dweight = op.dweight ? partial : nullptr,
                       .dbias = op.dbias ? partial + int64_t(cut.blocks) * width : nullptr,
                       .vectors = uint32_t(vectors),
                       .inner = uint32_t(op.inner),
                       .width = width,
                       .team = cut.team};
  dispatch_device(op.x.dtype, [&]<class T>() { launch<kCentered, T>(native(stream), a, cut); });
  if (op.dweight) add_column_sums(native(stream), a.dweight, cut.blocks, op.dweight);
  if (kCentered && op.dbias) add_column_sums(native(stream), a.dbias, cut.blocks, op.dbias);
}

}  // namespace

void rmsnorm_backward(StreamRef stream, const NormBackward& op) { norm_backward<false>(stream, op); }
void layernorm_backward(StreamRef stream, const NormBackward& op) { norm_backward<true>(stream, op); }

}  // namespace zeno::cuda
