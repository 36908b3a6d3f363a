#include "zeno/kernels/embedding.h"

#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/row_grid.h"
#include "zeno/kernels/cuda/vector.h"

namespace zeno::cuda {
namespace {

constexpr int kGroup = 8;  // elements per thread: 16 bytes of the 16-bit types

struct EmbeddingArgs {
  const int32_t *tokens, *positions;
  int64_t table_rows, table_stride;
  const void* places;  // null: no position table
  int64_t place_rows, place_stride;
  int64_t y_stride;
};

template <class W, class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    embedding_forward_kernel(RowGrid grid, const W* table, T* y, EmbeddingArgs a) {
  const auto [row, group, inside] = grid.place();
  if (!inside) return;
  const int32_t token = a.tokens[row];
  expect(token >= 0 && token < a.table_rows);
  float v[N];
  unpack(load<N>(table + token * a.table_stride + group * N), v);
  if (a.places) {
    const int32_t position = a.positions[row];
    expect(position >= 0 && position < a.place_rows);
    float place[N];
    unpack(load<N>(static_cast<const W*>(a.places) + position * a.place_stride + group * N), place);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] += place[i];
  }
  store<N>(y + row * a.y_stride + group * N, pack<T>(v));
}

void check(const EmbeddingForward& op) {
  const int64_t rows = op.y.rows, cols = op.y.cols;
  ensure(op.tokens.count() == rows, "[embedding] tokens: got {}, expected {}", op.tokens.count(), rows);
  ensure(op.table.cols == cols, "[embedding] table: got {} columns, expected {}", op.table.cols, cols);
  if (!op.position_table) return;
  ensure(op.positions.count() == rows, "[embedding] positions: got {}, expected {}", op.positions.count(),
         rows);
  ensure(op.position_table.cols == cols && op.position_table.dtype == op.table.dtype,
         "[embedding] position_table: got {} columns of {}, expected {} of {}", op.position_table.cols,
         name_of(op.position_table.dtype), cols, name_of(op.table.dtype));
}

template <class W, class T, int N>
void launch(cudaStream_t stream, const EmbeddingForward& op) {
  const RowGrid grid(op.y.rows, op.y.cols / N);
  if (grid.blocks == 0) return;
  const EmbeddingArgs a{.tokens = op.tokens.as<int32_t>(),
                        .positions = op.position_table ? op.positions.as<int32_t>() : nullptr,
                        .table_rows = op.table.rows,
                        .table_stride = op.table.stride,
                        .places = op.position_table.data,
                        .place_rows = op.position_table.rows,
                        .place_stride = op.position_table.stride,
                        .y_stride = op.y.stride};
  embedding_forward_kernel<W, T, N>
      <<<grid.blocks, kRowThreads, 0, stream>>>(grid, pointer<W>(op.table), pointer<T>(op.y), a);
  check_launch("embedding_forward");
}

}  // namespace

void embedding_forward(StreamRef stream, const EmbeddingForward& op) {
  check(op);
  const bool vector = op.y.cols % kGroup == 0 && rows_aligned(op.table) && rows_aligned(op.position_table) &&
                      rows_aligned(op.y);
  dispatch_device(op.table.dtype, [&]<class W>() {
    dispatch_device(op.y.dtype, [&]<class T>() {
      if (vector) return launch<W, T, kGroup>(native(stream), op);
      launch<W, T, 1>(native(stream), op);
    });
  });
}

}  // namespace zeno::cuda
