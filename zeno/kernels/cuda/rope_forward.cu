#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/rope.h"
#include "zeno/kernels/cuda/row_grid.h"
#include "zeno/kernels/shape_checks.h"

// One pass over queries and keys. With norms, all heads of a thread are on their way before the first is
// used, and angles and weights are loaded once for them; without, more threads with less to hold each are
// faster (measured: 45 against 95 µs).
namespace zeno::cuda {
namespace {

constexpr int kHeads = 4;  // per thread

struct ForwardArgs {
  const void* x;
  void *y, *raw;
  int64_t x_stride, y_stride, raw_stride;
  Angles angles;
  float direction;
  const void *q_weight, *k_weight;
  bool float_weight;
  float* rstd;
  int64_t rstd_stride;
  float eps;
  uint32_t rows, teams;  // teams: per row
  int q_heads, heads;    // heads: those that turn
  int all;               // with those that pass
  HeadGrid grid;
};

// 1 / root mean square of the head of a team; every thread of the warp takes part.
template <class T>
__device__ inline float head_rstd(const ForwardArgs& a, const Pairs<T>& pairs) {
  constexpr int N = kVector<T>;
  float p[N], q[N], squares = 0;
  unpack(pairs.first, p);
  unpack(pairs.second, q);
#pragma unroll
  for (int i = 0; i < N; ++i) squares = fmaf(p[i], p[i], fmaf(q[i], q[i], squares));
  squares = team_sum<true, float>(squares, a.grid.team, nullptr);
  return 1.0f / sqrtf(squares / float(2 * a.grid.half) + a.eps);
}

// Rounded, as a norm of its own would leave it.
template <bool kWhole, class T>
__device__ inline void normalise(const ForwardArgs& a, Pairs<T>& pairs, int head, int at, int count,
                                 float rstd) {
  constexpr int N = kVector<T>;
  float p[N], q[N], wp[N], wq[N];
  const void* weight = head < a.q_heads ? a.q_weight : a.k_weight;
  load_weight_part<kWhole, T>(weight, a.float_weight, at, count, wp);
  load_weight_part<kWhole, T>(weight, a.float_weight, a.grid.half + at, count, wq);
  unpack(pairs.first, p);
  unpack(pairs.second, q);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    p[i] = p[i] * rstd * wp[i];
    q[i] = q[i] * rstd * wq[i];
  }
  pairs = {pack<T>(p), pack<T>(q)};
}

template <bool kNorm, bool kWhole, class T>
__global__ void __launch_bounds__(kHeadThreads) forward_kernel(ForwardArgs a) {
  constexpr int N = kVector<T>;
  const uint32_t unit = ((blockIdx.x * kHeadThreads) + threadIdx.x) >> a.grid.team_bits;
  const uint32_t row = unit / a.teams;
  const int place = int(unit - row * a.teams);
  const int at = int(threadIdx.x & uint32_t(a.grid.team - 1)) * N;
  // The threads of a warp stay together for the sums: what is outside holds zeros and writes nothing.
  const int count = row < a.rows ? min(N, a.grid.half - at) : 0;
  const auto head = [&](int k) { return place + k * int(a.teams); };
  const auto offset = [&](int k) { return int64_t(head(k)) * 2 * a.grid.half + at; };

  Pairs<T> pairs[kHeads];
  const T* x = static_cast<const T*>(a.x) + row * a.x_stride;
#pragma unroll
  for (int k = 0; k < kHeads; ++k) {
    if (count > 0 && head(k) < a.all) pairs[k].template fetch<kWhole>(x + offset(k), a.grid.half, count);
  }
  Turn<T> turn;
  if (count > 0) turn.template fetch<kWhole>(a.angles, row, at, a.grid.half, count);

  T* y = static_cast<T*>(a.y) + row * a.y_stride;
#pragma unroll
  for (int k = 0; k < kHeads; ++k) {
    const float rstd = kNorm ? head_rstd(a, pairs[k]) : 0;
    if (count <= 0 || head(k) >= a.all) continue;
    if (head(k) < a.heads) {
      if constexpr (kNorm) {
        T* raw = static_cast<T*>(a.raw) + row * a.raw_stride;
        if (a.raw) pairs[k].template put<kWhole>(raw + offset(k), a.grid.half, count);
        if (at == 0) a.rstd[row * a.rstd_stride + head(k)] = rstd;
        normalise<kWhole>(a, pairs[k], head(k), at, count, rstd);
      }
      turn.apply(pairs[k], a.direction);
    }
    pairs[k].template put<kWhole>(y + offset(k), a.grid.half, count);
  }
}

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    turn_kernel(RowGrid grid, T* x, int64_t stride, Angles angles, uint32_t half, float direction) {
  constexpr uint32_t N = kVector<T>;
  const auto [row, group, inside] = grid.place();
  if (!inside) return;
  const uint32_t per_head = half / N;
  const uint32_t head = uint32_t(group) / per_head;
  const uint32_t at = (uint32_t(group) - head * per_head) * N;
  T* place = x + row * stride + int64_t(head) * 2 * half + at;
  Pairs<T> pairs;
  pairs.template fetch<true>(place, int(half), N);
  Turn<T> turn;
  turn.template fetch<true>(angles, row, int(at), int(half), N);
  turn.apply(pairs, direction);
  pairs.template put<true>(place, int(half), N);
}

template <class T>
void launch(cudaStream_t stream, ForwardArgs a, const RopeForward& op) {
  a.grid = head_grid<T>(op.head_dim);
  bool whole = op.head_dim / 2 % kVector<T> == 0;
  for (const Tensor* t : {&op.x, &op.y, &op.raw, &op.table, &op.q_weight, &op.k_weight}) {
    whole = whole && rows_aligned(*t);
  }
  if (whole && !op.q_weight && op.y.data == op.x.data) {
    const RowGrid grid(op.x.rows, int64_t(a.heads) * op.head_dim / 2 / kVector<T>);
    turn_kernel<T><<<grid.blocks, kRowThreads, 0, stream>>>(grid, pointer<T>(op.x), a.x_stride, a.angles,
                                                            uint32_t(a.grid.half), a.direction);
    return check_launch("rope_forward");
  }
  const uint32_t blocks = uint32_t(div_ceil<int64_t>(op.x.rows * a.teams * a.grid.team, kHeadThreads));
  const auto run = [&](auto kernel) { kernel<<<blocks, kHeadThreads, 0, stream>>>(a); };
  if (op.q_weight) {
    whole ? run(forward_kernel<true, true, T>) : run(forward_kernel<true, false, T>);
  } else {
    run(forward_kernel<false, false, T>);
  }
  check_launch("rope_forward");
}

}  // namespace

void rope_turn(StreamRef stream, const RopeForward& op, float direction) {
  const int64_t heads = op.q_heads + op.k_heads;
  const int64_t all = op.y.data == op.x.data ? heads : op.x.cols / op.head_dim;
  if (op.x.rows == 0 || all == 0) return;
  const ForwardArgs a{
      .x = op.x.data,
      .y = op.y.data,
      .raw = op.raw.data,
      .x_stride = op.x.stride,
      .y_stride = op.y.stride,
      .raw_stride = op.raw.stride,
      .angles = {op.positions.as<int32_t>(), op.table.as<float>(), op.table.rows, op.table.stride},
      .direction = direction,
      .q_weight = op.q_weight.data,
      .k_weight = op.k_weight.data,
      .float_weight = op.q_weight.dtype == DType::f32,
      .rstd = pointer<float>(op.rstd),
      .rstd_stride = op.rstd.stride,
      .eps = op.eps,
      .rows = uint32_t(op.x.rows),
      .teams = uint32_t(div_ceil<int64_t>(all, kHeads)),
      .q_heads = int(op.q_heads),
      .heads = int(heads),
      .all = int(all),
      .grid = {}};
  dispatch_device(op.x.dtype, [&]<class T>() { launch<T>(native(stream), a, op); });
}

void rope_forward(StreamRef stream, const RopeForward& op) {
  check_shapes(op);
  rope_turn(stream, op, 1);
}

}  // namespace zeno::cuda
