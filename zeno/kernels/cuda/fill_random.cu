#include "zeno/kernels/cuda/fill_random.h"

#include "zeno/device/cuda/runtime.h"

namespace zeno::cuda {
namespace {

__device__ uint32_t mixed(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185ull;
  x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44dull;
  return uint32_t(x >> 32);
}

__global__ void fill(uint32_t* words, int64_t count) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    // Sign and mantissa at random, exponent of 0.5 in both halves.
    words[i] = (mixed(uint64_t(i) + 1) & 0x807f807fu) | 0x3f003f00u;
  }
}

}  // namespace

void fill_random(StreamRef stream, std::byte* data, size_t bytes) {
  if (bytes < 4) return;
  fill<<<8 * multiprocessors(), 256, 0, native(stream)>>>(reinterpret_cast<uint32_t*>(data),
                                                          int64_t(bytes / 4));
  check_launch("fill_random");
}

}  // namespace zeno::cuda
