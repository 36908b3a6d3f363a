#include <algorithm>

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/column_sums.h"
#include "zeno/kernels/cuda/norm.h"
#include "zeno/kernels/shape_checks.h"

// With n = (x - mean) · rstd and g = dy · weight: dx = rstd · (g - mean(g) - n · mean(g · n)) + dresidual,
// the middle term for LayerNorm only; dweight = Σ dy · n and dbias = Σ dy over all rows.
//
// One pass: a team of threads owns fixed columns, walks over the rows of its block and keeps its part of
// dweight and dbias in registers. A row is a warp's as long as its words fit into the registers: then nothing
// has to be waited for but memory, and few warps have enough of it under way. Blocks leave partial sums in
// scratch; their number follows from the shape alone, so the sums have the same bits on every device.
namespace zeno::cuda {
namespace {

constexpr int kTeamThreads = 256;      // most threads of a block that is one team
constexpr int kWarpThreads = 256;      // block size of teams inside a warp
constexpr int kProcessors = 132;       // of an H100 or H200: blocks come in multiples
constexpr int kProcessorWords = 2048;  // of 16 bytes of each input, that a processor has room for

// Words of 16 bytes a thread holds of a wide row. LayerNorm has twice the sums to keep.
template <bool kCentered>
inline constexpr int kHeld = kCentered ? 4 : 8;

struct BackwardArgs {
  const void *x, *weight, *dy, *dresidual;
  void* dx;
  int64_t x_stride, dy_stride, dresidual_stride, dx_stride;
  bool float_weight;
  const float *rstd, *mean;
  int64_t rstd_stride, mean_stride;
  float *dweight, *dbias;  // partial sums [blocks, width]; null: not wanted
  uint32_t rows;
  int width;  // elements of a row
  int team;   // threads per row, kWarp only
};

// What a thread needs of one row, as it lies in memory.
template <class T, int kGroups>
struct Slice {
  static constexpr int N = kVector<T>;
  Pack<T, N> x[kGroups], dy[kGroups], along[kGroups];
  float mean = 0, rstd = 0;
  int groups = 0;  // 0: there is no such row

  __device__ Slice(const BackwardArgs& a, uint32_t row, int lane, int team, bool centered) {
    if (row >= a.rows) return;
    groups = a.width / N;
    rstd = a.rstd[row * a.rstd_stride];
    if (centered) mean = a.mean[row * a.mean_stride];
    fetch(x, a.x, row * a.x_stride, lane, team);
    fetch(dy, a.dy, row * a.dy_stride, lane, team);
    if (a.dresidual) fetch(along, a.dresidual, row * a.dresidual_stride, lane, team);
  }

 private:
  __device__ void fetch(Pack<T, N> (&words)[kGroups], const void* from, int64_t start, int lane, int team) {
    const T* row = static_cast<const T*>(from) + start + lane * N;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if (lane + g * team < groups) words[g] = load_once<N>(row + g * team * N);
    }
  }
};

// Running sums of a thread's columns.
template <bool kCentered, int kGroups, int N>
struct Columns {
  float dweight[kGroups][N] = {};
  float dbias[kCentered ? kGroups : 1][N] = {};
};

// Σ g and Σ g · n of a row; RMSNorm needs the second only.
template <bool kCentered>
using Sums = std::conditional_t<kCentered, float2, float>;

// Adds the row to the columns and returns the thread's part of its sums.
template <bool kCentered, class T, int kGroups>
__device__ inline Sums<kCentered> gather_sums(const BackwardArgs& a, const Slice<T, kGroups>& s, int lane,
                                              int team, Columns<kCentered, kGroups, kVector<T>>& columns) {
  constexpr int N = kVector<T>;
  float sum_g = 0, sum_gn = 0;
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
      const float product = dy[i] * (kCentered ? x[i] - s.mean : x[i]);
      if constexpr (kCentered) sum_g = fmaf(dy[i], w[i], sum_g);
      sum_gn = fmaf(product, w[i], sum_gn);
      columns.dweight[g][i] = fmaf(product, s.rstd, columns.dweight[g][i]);
      if constexpr (kCentered) columns.dbias[g][i] += dy[i];
    }
  }
  if constexpr (kCentered) {
    return {sum_g, sum_gn * s.rstd};
  } else {
    return sum_gn * s.rstd;
  }
}

template <bool kCentered, class T, int kGroups>
__device__ inline void write_dx(const BackwardArgs& a, const Slice<T, kGroups>& s, uint32_t row, int lane,
                                int team, Sums<kCentered> sums) {
  constexpr int N = kVector<T>;
  float shift = 0, slope;  // dx = rstd · g - slope · (x - mean) - shift + dresidual
  if constexpr (kCentered) {
    shift = s.rstd * (sums.x / float(a.width)), slope = s.rstd * s.rstd * (sums.y / float(a.width));
  } else {
    slope = s.rstd * s.rstd * (sums / float(a.width));
  }
  T* dx = static_cast<T*>(a.dx) + row * a.dx_stride + lane * N;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int group = lane + g * team;
    if (group >= s.groups) continue;
    float x[N], dy[N], w[N], r[N] = {};
    load_weight<T>(a.weight, a.float_weight, group * N, w);
    unpack(s.x[g], x);
    unpack(s.dy[g], dy);
    if (a.dresidual) unpack(s.along[g], r);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float rest = kCentered ? fmaf(s.mean - x[i], slope, r[i] - shift) : fmaf(-x[i], slope, r[i]);
      r[i] = fmaf(dy[i] * w[i], s.rstd, rest);
    }
    store<N>(dx + g * team * N, pack<T>(r));
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
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      __syncthreads();  // the readers of the group before
#pragma unroll
      for (int i = 0; i < N; ++i) tile[threadIdx.x * N + i] = sums[g][i];
      __syncthreads();
      const int begin = g * team * N, columns = min(team * N, width - begin);
      for (int column = int(threadIdx.x); column < columns; column += kWarpThreads) {
        float sum = 0;
        for (int t = 0; t < kWarpThreads / team; ++t) sum += tile[t * team * N + column];
        partial[begin + column] = sum;
      }
    }
  }
}

template <bool kCentered, bool kWarp, int kGroups, class T>
__global__ void __launch_bounds__(kWarp ? kWarpThreads : kTeamThreads) backward_kernel(BackwardArgs a) {
  constexpr int N = kVector<T>;
  __shared__ Sums<kCentered> slots[2][kMaxNormWarps];
  const int team = team_threads<kWarp, kGroups>(a.team);
  const int lane = kWarp ? int(threadIdx.x) & (team - 1) : int(threadIdx.x);
  const uint32_t teams = kWarp ? uint32_t(kWarpThreads / team) : 1;
  Columns<kCentered, kGroups, N> columns;
  int parity = 0;
  // All threads of a block make the same number of rounds: the sums need them together.
  for (uint32_t base = blockIdx.x * teams; base < a.rows; base += gridDim.x * teams, parity ^= 1) {
    const uint32_t row = base + (kWarp ? threadIdx.x / uint32_t(team) : 0);
    const Slice<T, kGroups> slice(a, row, lane, team, kCentered);
    const auto sums = gather_sums<kCentered>(a, slice, lane, team, columns);
    write_dx<kCentered>(a, slice, row, lane, team, team_sum<kWarp>(sums, team, slots[parity]));
  }
  if (a.dweight) write_partial<kWarp>(columns.dweight, a.dweight, lane, team, a.width);
  if constexpr (kCentered) {
    if (a.dbias) write_partial<kWarp>(columns.dbias, a.dbias, lane, team, a.width);
  }
}

// Any width and alignment, in two kernels. First the columns, because dx may overwrite dy: a block sums 32
// columns of every gridDim.y-th row.
template <bool kCentered, class T>
__global__ void __launch_bounds__(256) columns_any_kernel(BackwardArgs a) {
  __shared__ float2 tile[8][32];
  const int column = int(blockIdx.x * 32 + threadIdx.x);
  float2 sums = {0, 0};
  for (int64_t row = blockIdx.y * 8 + threadIdx.y; column < a.width && row < a.rows; row += gridDim.y * 8) {
    const float dy = to_float(static_cast<const T*>(a.dy)[row * a.dy_stride + column]);
    const float mean = kCentered ? a.mean[row * a.mean_stride] : 0;
    const float x = to_float(static_cast<const T*>(a.x)[row * a.x_stride + column]);
    sums.x = fmaf(dy, (x - mean) * a.rstd[row * a.rstd_stride], sums.x);
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
  const int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(a.x) + row * a.x_stride;
  const T* dy = static_cast<const T*>(a.dy) + row * a.dy_stride;
  const T* along = a.dresidual ? static_cast<const T*>(a.dresidual) + row * a.dresidual_stride : nullptr;
  T* dx = static_cast<T*>(a.dx) + row * a.dx_stride;
  const float rstd = a.rstd[row * a.rstd_stride];
  const float mean = kCentered ? a.mean[row * a.mean_stride] : 0;
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

// How the rows are cut. A function of the shape and the alignment only.
struct Cut {
  bool any = false;  // the kernels for every width and alignment
  int threads = kWarpThreads;
  int team = 32;        // threads per row; a block, where it has more than a warp
  int groups = 1;       // 16-byte words per thread, at most
  uint32_t blocks = 1;  // that leave partial sums
};

template <bool kCentered>
Cut cut_of(const NormBackward& op) {
  const int64_t bytes = op.x.cols * int64_t(size_of(op.x.dtype));
  bool vector = bytes % 16 == 0;
  for (const Tensor* t : {&op.x, &op.dy, &op.dresidual, &op.dx, &op.weight}) {
    vector = vector && rows_aligned(*t);
  }
  Cut cut;
  const int words = int(bytes / 16);
  if (!vector || words > kTeamThreads * kHeld<kCentered>) {
    cut.any = true;
    cut.blocks = uint32_t(std::min<int64_t>(div_ceil<int64_t>(op.x.rows, 8), 64));
    return cut;
  }
  while (cut.team / 2 >= words && cut.team > 1) cut.team /= 2;
  if (words > 32 * kHeld<kCentered>) cut.threads = cut.team = round_up(div_ceil(words, kHeld<kCentered>), 32);
  if (words > cut.team) cut.groups = words > cut.team * 4 ? kHeld<kCentered> : 4;
  const int64_t room = kProcessors * (kProcessorWords / (cut.threads * cut.groups));
  cut.blocks = uint32_t(std::min(div_ceil<int64_t>(op.x.rows, cut.threads / cut.team), room));
  return cut;
}

template <bool kCentered, class T>
void launch(cudaStream_t stream, const BackwardArgs& a, const Cut& cut) {
  const auto run = [&](auto kernel) { kernel<<<cut.blocks, cut.threads, 0, stream>>>(a); };
  if (cut.any) {
    if (a.dweight || a.dbias) {
      const dim3 grid(div_ceil(uint32_t(a.width), 32u), cut.blocks);
      columns_any_kernel<kCentered, T><<<grid, dim3(32, 8), 0, stream>>>(a);
    }
    dx_any_kernel<kCentered, T><<<a.rows, 256, 0, stream>>>(a);
  } else if (cut.team > 32) {
    run(backward_kernel<kCentered, false, kHeld<kCentered>, T>);
  } else if (cut.groups == 1) {
    run(backward_kernel<kCentered, true, 1, T>);
  } else if (cut.groups == 4) {
    run(backward_kernel<kCentered, true, 4, T>);
  } else {
    run(backward_kernel<kCentered, true, kHeld<kCentered>, T>);
  }
  check_launch("norm_backward");
}

template <bool kCentered>
void norm_backward(StreamRef stream, const NormBackward& op) {
  check_shapes(op, kCentered);
  if (op.x.count() == 0) return;
  const int width = int(op.x.cols);
  const Cut cut = cut_of<kCentered>(op);
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
                       .rows = uint32_t(op.x.rows),
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
