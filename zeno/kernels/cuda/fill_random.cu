#include "zeno/kernels/cuda/fill_random.h"

#include "zeno/device/cuda/runtime.h"

namespace zeno::cuda {
namespace {

__device__ uint32_t mixed(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185ull;
  x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44dull;
  return uint32_t(x >> 32);
}

// Of both halves of a word: what is random, sign, mantissa and two bits of the exponent, and what is not.
struct Pattern {
  uint32_t random, fixed;
};
constexpr Pattern kBf16{0x81ff81ffu, 0x3c003c00u}, kFp16{0x8fff8fffu, 0x20002000u};

__global__ void fill(uint32_t* words, int64_t count, Pattern pattern) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    words[i] = (mixed(uint64_t(i) + 1) & pattern.random) | pattern.fixed;
  }
}

}  // namespace

void fill_random(StreamRef stream, std::byte* data, size_t bytes, DType dtype) {
  if (bytes < 4) return;
  fill<<<8 * multiprocessors(), 256, 0, native(stream)>>>(
      reinterpret_cast<uint32_t*>(data), int64_t(bytes / 4), dtype == DType::f16 ? kFp16 : kBf16);
  check_launch("fill_random");
}

}  // namespace zeno::cuda
