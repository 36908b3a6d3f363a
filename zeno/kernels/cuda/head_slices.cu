#include "zeno/kernels/head_slices.h"

#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/row_grid.h"
#include "zeno/kernels/cuda/vector.h"
#include "zeno/kernels/shape_checks.h"

namespace zeno::cuda {
namespace {

struct HeadRows {
  HeadSlices op;
  int64_t groups;  // of a head

  template <int N, class T>
  __device__ T* in_token(int64_t row, int64_t head, int64_t group) const {
    return reinterpret_cast<T*>(op.tokens.data) + row * op.tokens.stride + head * op.head_dim + group * N;
  }
  template <int N, class T>
  __device__ T* in_slice(int64_t row, int64_t head, int64_t copy, int64_t group) const {
    const auto [rank, place] = op.place(head, copy);
    return reinterpret_cast<T*>(op.slices.data) + op.slice_row(row, rank) * op.slices.stride +
           place * op.head_dim + group * N;
  }
};

// One thread, N neighbouring values of a head.
template <int N, class T>
__global__ void __launch_bounds__(kRowThreads) pack_kernel(RowGrid grid, HeadRows a) {
  const auto [row, column, inside] = grid.place();
  if (!inside) return;
  const int64_t head = column / a.groups, group = column % a.groups;
  const auto values = load_once<N>(a.in_token<N, T>(row, head, group));
  for (int64_t copy = 0; copy < a.op.copies(head); ++copy)
    store<N>(a.in_slice<N, T>(row, head, copy, group), values);
}

template <int N, class T>
__global__ void __launch_bounds__(kRowThreads) unpack_kernel(RowGrid grid, HeadRows a) {
  const auto [row, column, inside] = grid.place();
  if (!inside) return;
  const int64_t head = column / a.groups, group = column % a.groups, copies = a.op.copies(head);
  auto values = load_once<N>(a.in_slice<N, T>(row, head, 0, group));
  if (copies > 1) {
    float sum[N], other[N];
    unpack(values, sum);
    for (int64_t copy = 1; copy < copies; ++copy) {
      unpack(load_once<N>(a.in_slice<N, T>(row, head, copy, group)), other);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += other[i];
    }
    values = pack<T>(sum);
  }
  store<N>(a.in_token<N, T>(row, head, group), values);
}

template <int N, class T>
void launch(StreamRef stream, const HeadSlices& op, bool packs) {
  const HeadRows rows{op, op.head_dim / N};
  const RowGrid grid(op.tokens.rows, op.token_heads() * rows.groups);
  if (grid.blocks == 0) return;
  if (packs) {
    pack_kernel<N, T><<<grid.blocks, kRowThreads, 0, native(stream)>>>(grid, rows);
  } else {
    unpack_kernel<N, T><<<grid.blocks, kRowThreads, 0, native(stream)>>>(grid, rows);
  }
  check_launch("head_slices");
}

void run(StreamRef stream, const HeadSlices& op, bool packs) {
  check_shapes(op);
  dispatch_device(op.tokens.dtype, [&]<class T>() {
    constexpr int kWide = kVector<T>;
    const bool wide = op.head_dim % kWide == 0 && rows_aligned(op.tokens, 16) && rows_aligned(op.slices, 16);
    if (wide) return launch<kWide, T>(stream, op, packs);
    launch<1, T>(stream, op, packs);
  });
}

}  // namespace

void pack_heads(StreamRef stream, const HeadSlices& op) { run(stream, op, true); }
void unpack_heads(StreamRef stream, const HeadSlices& op) { run(stream, op, false); }

}  // namespace zeno::cuda
