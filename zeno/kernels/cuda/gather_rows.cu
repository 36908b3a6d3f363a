#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cross_entropy.h"
#include "zeno/kernels/cuda/row_grid.h"
#include "zeno/kernels/cuda/vector.h"

namespace zeno::cuda {
namespace {

struct RowCopy {
  int64_t src_stride, dst_stride;  // in words
  int64_t indexed_rows;            // of the side that `index` points into
  const int32_t* index;
  bool scatter;  // index points into dst, else into src
};

template <class Word>
__global__ void __launch_bounds__(kRowThreads)
    copy_rows_kernel(RowGrid grid, const Word* src, Word* dst, RowCopy a) {
  const auto [row, word, inside] = grid.place();
  if (!inside) return;
  const int64_t there = a.index[row];
  expect(there >= 0 && there < a.indexed_rows);
  const int64_t from = a.scatter ? row : there, to = a.scatter ? there : row;
  dst[to * a.dst_stride + word] = src[from * a.src_stride + word];
}

template <class Word>
void launch(cudaStream_t stream, const Tensor& src, const Tensor& index, const Tensor& dst, bool scatter) {
  const int64_t size = int64_t(size_of(src.dtype)), word = int64_t(sizeof(Word));
  const RowGrid grid(index.count(), src.cols * size / word);
  if (grid.blocks == 0) return;
  copy_rows_kernel<<<grid.blocks, kRowThreads, 0, stream>>>(
      grid, reinterpret_cast<const Word*>(src.data), reinterpret_cast<Word*>(dst.data),
      {src.stride * size / word, dst.stride * size / word, scatter ? dst.rows : src.rows, index.as<int32_t>(),
       scatter});
  check_launch("copy_rows");
}

// In the widest words that the rows of both tensors are made of.
void copy_rows(StreamRef stream, const char* name, const Tensor& src, const Tensor& index, const Tensor& dst,
               bool scatter) {
  ensure(src.cols == dst.cols && src.dtype == dst.dtype, "[{}] dst: got {} columns of {}, expected {} of {}",
         name, dst.cols, name_of(dst.dtype), src.cols, name_of(src.dtype));
  const auto fits = [&](size_t bytes) {
    return rows_aligned(src, bytes) && rows_aligned(dst, bytes) &&
           size_t(src.cols) * size_of(src.dtype) % bytes == 0;
  };
  if (fits(16)) return launch<uint4>(native(stream), src, index, dst, scatter);
  if (fits(8)) return launch<uint2>(native(stream), src, index, dst, scatter);
  if (fits(4)) return launch<uint32_t>(native(stream), src, index, dst, scatter);
  if (fits(2)) return launch<uint16_t>(native(stream), src, index, dst, scatter);
  launch<uint8_t>(native(stream), src, index, dst, scatter);
}

}  // namespace

void gather_rows(StreamRef stream, Tensor src, Tensor index, Tensor dst) {
  ensure(index.count() == dst.rows, "[gather_rows] index: got {}, expected {}", index.count(), dst.rows);
  copy_rows(stream, "gather_rows", src, index, dst, false);
}

void scatter_rows(StreamRef stream, Tensor src, Tensor index, Tensor dst) {
  ensure(index.count() == src.rows, "[scatter_rows] index: got {}, expected {}", index.count(), src.rows);
  copy_rows(stream, "scatter_rows", src, index, dst, true);
}

}  // namespace zeno::cuda
