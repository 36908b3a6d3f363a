#include "zeno/kernels/rope.h"

#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/row_grid.h"
#include "zeno/kernels/cuda/vector.h"

namespace zeno::cuda {
namespace {

struct RopeArgs {
  int64_t stride;
  const int32_t* positions;
  const float* table;
  int64_t table_rows, table_stride;
  uint32_t half;  // head_dim / 2
  float direction;
};

// A thread turns N pairs: columns [at, at + N) of the first half of a head and their partners in the second
// half.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads) rope_kernel(RowGrid grid, T* x, RopeArgs a) {
  const auto [row, group, inside] = grid.place();
  if (!inside) return;
  const uint32_t per_head = a.half / N;
  const uint32_t head = uint32_t(group) / per_head;
  const uint32_t at = (uint32_t(group) - head * per_head) * N;
  T* first = x + row * a.stride + int64_t(head) * 2 * a.half + at;
  T* second = first + a.half;
  const auto firsts = load<N>(first), seconds = load<N>(second);
  const int32_t position = a.positions[row];
  expect(position >= 0 && position < a.table_rows);
  const float* angles = a.table + position * a.table_stride + at;
  float cosine[N], sine[N], p[N], q[N];
  unpack(load<N>(angles), cosine);
  unpack(load<N>(angles + a.half), sine);
  unpack(firsts, p);
  unpack(seconds, q);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float s = sine[i] * a.direction;
    const float turned = fmaf(-q[i], s, p[i] * cosine[i]);
    q[i] = fmaf(p[i], s, q[i] * cosine[i]);
    p[i] = turned;
  }
  store<N>(first, pack<T>(p));
  store<N>(second, pack<T>(q));
}

template <class T, int N>
void launch(cudaStream_t stream, const Rope& op) {
  const RowGrid grid(op.x.rows, op.x.cols / 2 / N);
  if (grid.blocks == 0) return;
  rope_kernel<T, N><<<grid.blocks, kRowThreads, 0, stream>>>(
      grid, pointer<T>(op.x),
      {op.x.stride, op.positions.as<int32_t>(), op.table.as<float>(), op.table.rows, op.table.stride,
       uint32_t(op.head_dim / 2), op.inverse ? -1.0f : 1.0f});
  check_launch("rope");
}

}  // namespace

void rope(StreamRef stream, const Rope& op) {
  ensure(op.head_dim > 0 && op.head_dim % 2 == 0 && op.x.cols % op.head_dim == 0,
         "[rope] head_dim: got {} for {} columns, expected an even divisor", op.head_dim, op.x.cols);
  ensure(op.table.cols == op.head_dim, "[rope] table: got {} columns, expected {}", op.table.cols,
         op.head_dim);
  ensure(op.positions.count() == op.x.rows, "[rope] positions: got {}, expected {}", op.positions.count(),
         op.x.rows);
  dispatch_device(op.x.dtype, [&]<class T>() {
    const bool vector = rows_aligned(op.x) && rows_aligned(op.table) && op.head_dim / 2 % kVector<T> == 0;
    if (vector) return launch<T, kVector<T>>(native(stream), op);
    launch<T, 1>(native(stream), op);
  });
}

}  // namespace zeno::cuda
