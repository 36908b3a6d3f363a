// Four-bit weights on a GPU: the kernel gives the CPU's bits, and a whole run those of a base that was
// rounded beforehand.
#include "tests/cuda/parity.h"
#include "tests/support/nf4_values.h"
#include "tests/support/train_run.h"

namespace zeno::cuda_tests {
namespace {

class CudaNf4 : public Parity {};

TEST_F(CudaNf4, DecodesTheBitsOfTheCpu) {
  for (int64_t count : {kNf4Cell, 5 * kNf4Cell}) {
    const Twin cells = zeros(DType::u8, 1, int64_t(nf4_bytes(count)));
    const Twin values = normal(DType::f32, 1, count - 100, 3, 0.02);
    nf4_quantise({values.cpu.as<float>(), size_t(count - 100)}, reinterpret_cast<Nf4Cell*>(cells.cpu.data));
    copy_async(*gpu, cells.gpu.data, cells.cpu.data, cells.cpu.bytes());
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const Twin y = poison(dtype, 1, count);
      nf4_decode(cpu, reinterpret_cast<const Nf4Cell*>(cells.cpu.data), y.cpu);
      nf4_decode(*gpu, reinterpret_cast<const Nf4Cell*>(cells.gpu.data), y.gpu);
      EXPECT_EQ(on_gpu(y), on_cpu(y)) << name_of(dtype) << " " << count;
    }
  }
}

TEST_F(CudaNf4, ARunEqualsThatOnABaseRoundedBefore) {
  for (DType compute : {DType::f32, DType::bf16}) {
    test::RunSpec spec;
    spec.shape.hidden = 128;
    spec.batch = {2, 32};
    spec.steps = 4;  // from the third on, the step is replayed as a graph
    spec.device = {Device::Kind::cuda, 0};
    spec.policy.compute = compute;
    spec.policy.deterministic = true;
    spec.shape.lora = std::make_shared<nn::LoraOptions>(
        nn::LoraOptions{.rank = 8, .scale = 2, .adapts = [](std::string_view) { return true; }});
    spec.values = test::nf4_values;
    const test::RunResult reference = run_threads(spec);
    spec.values = test::init_values;
    spec.policy.nf4_base = true;
    const test::RunResult result = run_threads(spec);
    EXPECT_EQ(result, reference) << name_of(compute);
    EXPECT_EQ(result.booked, result.peak);
  }
}

}  // namespace
}  // namespace zeno::cuda_tests
