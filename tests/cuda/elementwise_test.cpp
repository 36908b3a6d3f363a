#include "zeno/kernels/elementwise.h"

#include "tests/cuda/parity.h"

namespace zeno::cuda_tests {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
constexpr int64_t kCounts[] = {1, 7, 8, 2049, 100003};

class CudaElementwise : public Parity {
 protected:
  // Elements that start at an address of `shift` elements past an aligned one.
  Twin flat(DType dtype, int64_t count, uint64_t seed, int64_t shift = 0) {
    const Twin whole = normal(dtype, 1, count + shift, seed, 3);
    return {whole.cpu.columns(shift, count), whole.gpu.columns(shift, count)};
  }
};

// One rounding each: the bits have to agree.
TEST_F(CudaElementwise, CastAddAndScaleGiveTheBitsOfTheCpu) {
  for (int64_t count : kCounts) {
    for (int64_t shift : {0, 1}) {
      for (DType a : kTypes) {
        for (DType b : kTypes) {
          SCOPED_TRACE(std::string(name_of(a)) + " " + std::string(name_of(b)) + " " + std::to_string(count));
          const Twin x = flat(a, count, 1, shift), y = flat(b, count, 2, shift), z = flat(b, count, 3, shift);
          cast(cpu, x.cpu, y.cpu);
          cast(*gpu, x.gpu, y.gpu);
          EXPECT_EQ(on_gpu(y), on_cpu(y));
          add(cpu, x.cpu, z.cpu, y.cpu);
          add(*gpu, x.gpu, z.gpu, y.gpu);
          EXPECT_EQ(on_gpu(y), on_cpu(y));
          add(cpu, x.cpu, z.cpu, x.cpu);  // in place, as gradients are summed
          add(*gpu, x.gpu, z.gpu, x.gpu);
          EXPECT_EQ(on_gpu(x), on_cpu(x));
        }
        const Twin x = flat(a, count, 4, shift);
        scale(cpu, x.cpu, 0.37f);
        scale(*gpu, x.gpu, 0.37f);
        EXPECT_EQ(on_gpu(x), on_cpu(x));
      }
    }
  }
}

TEST_F(CudaElementwise, NothingBesideTheRangeIsTouched) {
  const Twin whole = normal(DType::bf16, 1, 4096, 1);
  scale(cpu, whole.cpu.columns(16, 2003), 2);
  scale(*gpu, whole.gpu.columns(16, 2003), 2);
  EXPECT_EQ(on_gpu(whole), on_cpu(whole));
}

}  // namespace
}  // namespace zeno::cuda_tests
