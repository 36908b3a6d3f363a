// Dropout and noise have the bits of the CPU; adapters that use them step as on the CPU, also from a recorded
// graph.
#include "zeno/kernels/noise.h"

#include "tests/cuda/parity.h"
#include "tests/support/train_run.h"

namespace zeno::cuda_tests {
namespace {

using test::Family;
using test::run_threads;
using test::RunResult;
using test::RunSpec;

class CudaNoise : public Parity {};

TEST_F(CudaNoise, GivesTheBitsOfTheCpu) {
  const Twin key = poison(DType::i64, 1, 1);
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (int64_t cols : {1, 5, 64, 1000}) {
      const Twin x = normal(dtype, 37, cols, 1), y = normal(dtype, 37, cols, 2);
      for (bool accumulate : {false, true}) {
        const auto op = [&](Tensor from, Tensor to, Tensor at) {
          return Dropout{
              .x = from, .y = to, .noise = {at, 3, 11}, .probability = 0.2f, .accumulate = accumulate};
        };
        dropout(cpu, op(x.cpu, y.cpu, key.cpu));
        dropout(*gpu, op(x.gpu, y.gpu, key.gpu));
        EXPECT_EQ(on_gpu(y), on_cpu(y));
      }
      add_uniform_noise(cpu, {.y = y.cpu, .noise = {key.cpu, 4, 0}, .size = 0.3f});
      add_uniform_noise(*gpu, {.y = y.gpu, .noise = {key.gpu, 4, 0}, .size = 0.3f});
      EXPECT_EQ(on_gpu(y), on_cpu(y));
    }
  }
}

TEST_F(CudaNoise, AdaptersStepAsOnTheCpu) {
  for (Family family : {Family::gpt2, Family::llama, Family::qwen3}) {
    for (DType compute : {DType::f32, DType::bf16}) {
      RunSpec spec;
      spec.family = family;
      spec.shape = {.hidden = 64, .heads = 4, .blocks = 2, .vocab = 160, .max_seq = 128};
      spec.shape.neftune_alpha = 5;
      spec.shape.lora = std::make_shared<nn::LoraOptions>(
          nn::LoraOptions{.rank = 8, .scale = 2, .dropout = 0.1f, .adapts = [](std::string_view module) {
                            return module.back() != 'k';
                          }});
      spec.batch = {2, 80};
      spec.steps = 5;  // from the third on, a graph
      spec.policy.compute = compute;
      spec.policy.deterministic = true;
      const RunResult reference = run_threads(spec);
      spec.device = {Device::Kind::cuda, 0};
      const RunResult ours = run_threads(spec);
      EXPECT_EQ(run_threads(spec), ours);
      const double tolerance = compute == DType::f32 ? 1e-4 : 2e-2;
      for (size_t i = 0; i < ours.losses.size(); ++i)
        EXPECT_NEAR(ours.losses[i], reference.losses[i], tolerance * reference.losses[i]) << "step " << i;
      for (int stage : {2, 3}) {
        RunSpec two = spec;
        two.world = 2;
        const RunResult replicated = run_threads(two);
        apply_stage(two.policy, stage);
        EXPECT_EQ(run_threads(two), replicated) << "stage " << stage;
      }
    }
  }
}

}  // namespace
}  // namespace zeno::cuda_tests
