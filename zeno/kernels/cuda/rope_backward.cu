#include <algorithm>

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/column_sums.h"
#include "zeno/kernels/cuda/rope.h"
#include "zeno/kernels/shape_checks.h"

// With QK-norm, one pass: turn the gradient back, round it as rope alone would leave it, and apply the
// gradient of the norm (n = x · rstd, g = dy · weight): dx = rstd · (g - n · mean(g · n)), dweight = Σ dy ·
// n. Blocks belong to the queries or to the keys and walk over their rows; a thread keeps its columns of
// dweight in registers. The number of blocks follows from the shape alone, so the sums have the same bits on
// every device.
namespace zeno::cuda {
namespace {

constexpr int kHeads = 2;  // per thread and round
constexpr int64_t kBlocks =
    6 * 132;  // whole waves with 2 or 3 blocks on each of the 132 processors of an H100

// The heads that share a weight.
struct Part {
  int64_t column;  // of the first head
  int first, heads;
  const void* weight;
  float* dweight;                 // partial sums [blocks, head_dim]; null: not wanted
  uint32_t blocks, teams, units;  // teams: per row; units: rows · teams
};

struct BackwardArgs {
  const void* x;
  void* dx;
  int64_t x_stride, dx_stride;
  Angles angles;
  bool float_weight;
  const float* rstd;
  int64_t rstd_stride;
  Part q, k;
  HeadGrid grid;
};

// What a thread holds of one head. Σ g · n of the team needs every thread of the warp.
template <class T>
struct HeadGradient {
  static constexpr int N = kVector<T>;
  Pairs<T> x, dy;
  float rstd = 0;

  __device__ float sum(const float (&w)[2][N], float (&dweight)[2][N]) const {
    return add_half(x.first, dy.first, w[0], dweight[0]) + add_half(x.second, dy.second, w[1], dweight[1]);
  }
  __device__ Pairs<T> gradient(const float (&w)[2][N], float mean) const {
    return {half_gradient(x.first, dy.first, w[0], mean), half_gradient(x.second, dy.second, w[1], mean)};
  }

 private:
  __device__ float add_half(const Pack<T, N>& x_half, const Pack<T, N>& dy_half, const float (&w)[N],
                            float (&dweight)[N]) const {
    float v[N], g[N], total = 0;
    unpack(x_half, v);
    unpack(dy_half, g);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float n = v[i] * rstd;
      total = fmaf(g[i] * w[i], n, total);
      dweight[i] = fmaf(g[i], n, dweight[i]);
    }
    return total;
  }
  __device__ Pack<T, N> half_gradient(const Pack<T, N>& x_half, const Pack<T, N>& dy_half,
                                      const float (&w)[N], float mean) const {
    float v[N], g[N];
    unpack(x_half, v);
    unpack(dy_half, g);
#pragma unroll
    for (int i = 0; i < N; ++i) g[i] = fmaf(-(v[i] * rstd), mean, g[i] * w[i]) * rstd;
    return pack<T>(g);
  }
};

// The teams of a block meet in shared memory and are added in order.
template <int N>
__device__ inline void write_partial(const float (&sums)[2][N], float* partial, const HeadGrid& grid) {
  __shared__ float tile[kHeadThreads][2 * N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    tile[threadIdx.x][i] = sums[0][i];
    tile[threadIdx.x][N + i] = sums[1][i];
  }
  __syncthreads();
  for (int column = int(threadIdx.x); column < 2 * grid.half; column += kHeadThreads) {
    const int pair = column < grid.half ? column : column - grid.half;
    const int at = pair % N + (column < grid.half ? 0 : N);
    float sum = 0;
    for (int thread = pair / N; thread < kHeadThreads; thread += grid.team) sum += tile[thread][at];
    partial[column] = sum;
  }
}

template <bool kWhole, class T>
__global__ void __launch_bounds__(kHeadThreads) backward_kernel(BackwardArgs a) {
  constexpr int N = kVector<T>;
  const Part& part = blockIdx.x < a.q.blocks ? a.q : a.k;
  const uint32_t block = blockIdx.x < a.q.blocks ? blockIdx.x : blockIdx.x - a.q.blocks;
  const uint32_t teams = uint32_t(kHeadThreads) >> a.grid.team_bits;
  const int half = a.grid.half, at = int(threadIdx.x & uint32_t(a.grid.team - 1)) * N;
  float dweight[2][N] = {};
  // All threads of a block make the same number of rounds: the sums need them together. What is outside holds
  // zeros and writes nothing.
  for (uint32_t base = block * teams; base < part.units; base += part.blocks * teams) {
    const uint32_t unit = base + (threadIdx.x >> a.grid.team_bits);
    const uint32_t row = unit / part.teams;
    const int place = int(unit - row * part.teams);
    const int count = unit < part.units ? min(N, half - at) : 0;
    const auto inside = [&](int k) { return count > 0 && place + k * int(part.teams) < part.heads; };
    const auto offset = [&](int k) {
      return part.column + int64_t(place + k * int(part.teams)) * 2 * half + at;
    };
    const T* x = static_cast<const T*>(a.x) + row * a.x_stride;
    T* dx = static_cast<T*>(a.dx) + row * a.dx_stride;

    HeadGradient<T> heads[kHeads];
#pragma unroll
    for (int k = 0; k < kHeads; ++k) {
      if (!inside(k)) continue;
      heads[k].x.template fetch<kWhole>(x + offset(k), half, count);
      heads[k].dy.template fetch<kWhole>(dx + offset(k), half, count);
      heads[k].rstd = a.rstd[row * a.rstd_stride + part.first + place + k * int(part.teams)];
    }
    Turn<T> turn;
    float w[2][N] = {};
    if (count > 0) {
      turn.template fetch<kWhole>(a.angles, row, at, half, count);
      load_weight_part<kWhole, T>(part.weight, a.float_weight, at, count, w[0]);
      load_weight_part<kWhole, T>(part.weight, a.float_weight, half + at, count, w[1]);
    }
#pragma unroll
    for (int k = 0; k < kHeads; ++k) {
      turn.apply(heads[k].dy, -1);
      const float sum = team_sum<true, float>(heads[k].sum(w, dweight), a.grid.team, nullptr);
      if (!inside(k)) continue;
      heads[k].gradient(w, sum / float(2 * half)).template put<kWhole>(dx + offset(k), half, count);
    }
  }
  if (part.dweight) write_partial(dweight, part.dweight + int64_t(block) * 2 * half, a.grid);
}

// Queries and keys share the blocks as they share the heads.
Part part_of(const RopeBackward& op, bool keys, const HeadGrid& grid) {
  const int64_t all = op.q_heads + op.k_heads, heads = keys ? op.k_heads : op.q_heads;
  const int64_t first = keys ? op.q_heads : 0, teams = div_ceil<int64_t>(heads, kHeads);
  const int64_t useful = div_ceil<int64_t>(op.dx.rows * teams, kHeadThreads / grid.team);
  return {.column = first * op.head_dim,
          .first = int(first),
          .heads = int(heads),
          .weight = (keys ? op.k_weight : op.q_weight).data,
          .dweight = nullptr,
          .blocks = uint32_t(std::min(useful, div_ceil<int64_t>(kBlocks * heads, all))),
          .teams = uint32_t(teams),
          .units = uint32_t(op.dx.rows * teams)};
}

template <class T>
void launch(StreamRef stream, const RopeBackward& op) {
  const HeadGrid grid = head_grid<T>(op.head_dim);
  BackwardArgs a{.x = op.x.data,
                 .dx = op.dx.data,
                 .x_stride = op.x.stride,
                 .dx_stride = op.dx.stride,
                 .angles = {op.positions.as<int32_t>(), op.table.as<float>(), op.table.rows, op.table.stride},
                 .float_weight = op.q_weight.dtype == DType::f32,
                 .rstd = op.rstd.as<float>(),
                 .rstd_stride = op.rstd.stride,
                 .q = part_of(op, false, grid),
                 .k = part_of(op, true, grid),
                 .grid = grid};
  const std::span<std::byte> room = scratch(stream);
  const size_t partial = sizeof(float) * size_t(a.q.blocks + a.k.blocks) * size_t(op.head_dim);
  ensure(room.size() >= partial, "[rope] scratch: got {} bytes, expected {}", room.size(), partial);
  float* sums = reinterpret_cast<float*>(room.data());
  if (op.dq_weight) a.q.dweight = sums;
  if (op.dk_weight) a.k.dweight = sums + int64_t(a.q.blocks) * op.head_dim;

  bool whole = op.head_dim / 2 % kVector<T> == 0;
  for (const Tensor* t : {&op.dx, &op.x, &op.table, &op.q_weight, &op.k_weight})
    whole = whole && rows_aligned(*t);
  const auto run = [&](auto kernel) {
    kernel<<<a.q.blocks + a.k.blocks, kHeadThreads, 0, native(stream)>>>(a);
  };
  whole ? run(backward_kernel<true, T>) : run(backward_kernel<false, T>);
  check_launch("rope_backward");
  if (op.dq_weight) add_column_sums(native(stream), a.q.dweight, a.q.blocks, op.dq_weight);
  if (op.dk_weight) add_column_sums(native(stream), a.k.dweight, a.k.blocks, op.dk_weight);
}

}  // namespace

void rope_backward(StreamRef stream, const RopeBackward& op) {
  check_shapes(op);
  if (op.dx.rows == 0 || op.q_heads + op.k_heads == 0) return;
  if (op.q_weight) return dispatch_device(op.dx.dtype, [&]<class T>() { launch<T>(stream, op); });
  RopeForward turn;
  turn.x = turn.y = op.dx;
  turn.positions = op.positions, turn.table = op.table;
  turn.q_heads = op.q_heads, turn.k_heads = op.k_heads, turn.head_dim = op.head_dim;
  rope_turn(stream, turn, -1);
}

}  // namespace zeno::cuda
