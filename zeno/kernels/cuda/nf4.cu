#include "zeno/kernels/nf4.h"

#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/vector.h"

namespace zeno::cuda {
namespace {

constexpr int kThreads = int(kNf4CellBlocks);
constexpr int kGroup = 8;  // elements per thread and turn: 16 bytes of the 16-bit types

// One block of threads, one cell: each thread works out one scale, then all go through the cell together.
template <class T>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const Nf4Cell* cells, T* y, const std::array<float, 16> levels) {
  __shared__ float level[16], scale[kThreads];
  const Nf4Cell* const cell = cells + blockIdx.x;
  const auto* const scales = reinterpret_cast<const uint8_t*>(&cell->scales);
  scale[threadIdx.x] = nf4_scale(cell->base, cell->step, scales[threadIdx.x]);
  if (threadIdx.x < 16) level[threadIdx.x] = reinterpret_cast<const float*>(&levels)[threadIdx.x];
  __syncthreads();
  const auto* const codes = reinterpret_cast<const uint32_t*>(&cell->codes);
  T* const out = y + int64_t(blockIdx.x) * kNf4Cell;
#pragma unroll
  for (int group = int(threadIdx.x); group < int(kNf4Cell) / kGroup; group += kThreads) {
    const uint32_t pairs = __ldcs(codes + group);
    const float factor = scale[group / int(kNf4Block / kGroup)];
    float x[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      // Bytes come lowest first, and of each the upper half first.
      const uint32_t code = pairs >> (i % 2 == 0 ? 4 * i + 4 : 4 * i - 4) & 15;
      x[i] = level[code] * factor;
    }
    store<kGroup>(out + group * kGroup, pack<T>(x));
  }
}

}  // namespace

void nf4_decode(StreamRef stream, const Nf4Cell* cells, Tensor y) {
  ensure(y.count() % kNf4Cell == 0 && y.contiguous(),
         "[nf4_decode] got {} x {} with stride {}, expected whole cells", y.rows, y.cols, y.stride);
  ensure(rows_aligned(y), "[nf4_decode] got unaligned memory, expected 16 bytes");
  if (y.count() == 0) return;
  dispatch_device(y.dtype, [&]<class T>() {
    decode_kernel<<<uint32_t(nf4_cells(y.count())), kThreads, 0, native(stream)>>>(cells, pointer<T>(y),
                                                                                   kNf4Levels);
    check_launch("nf4_decode");
  });
}

}  // namespace zeno::cuda
