// The engine on a GPU: the same steps as on the CPU, and promise 1 among the settings of a GPU. Several ranks
// are threads that share the GPU.
#include <gtest/gtest.h>

#include "tests/support/full_tests.h"
#include "tests/zero/mesh_runs.h"
#include "zeno/base/rng.h"
#include "zeno/kernels/swiglu_product.h"

namespace zeno::cuda_tests {
namespace {

using test::Family;
using test::run_threads;
using test::RunResult;
using test::RunSpec;

using test::kFull;

class CudaEngine : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(Device::Kind::cuda) == 0) GTEST_SKIP() << "no GPU";
  }
  // Long enough for cuDNN's kernels, wide enough for vectors.
  static RunSpec spec(Family family, DType compute) {
    RunSpec spec;
    spec.family = family;
    spec.shape = {.hidden = 64, .heads = 4, .blocks = 3, .vocab = 160, .max_seq = 128};
    spec.batch = {2, 80};
    spec.device = {Device::Kind::cuda, 0};
    spec.policy.compute = compute;
    spec.policy.deterministic = true;
    spec.lr = 1e-3f;
    return spec;
  }
  static RunSpec on_cpu(RunSpec spec) {
    spec.device = {};
    return spec;
  }
};

TEST_F(CudaEngine, StepsAsTheCpuDoes) {
  for (Family family : {Family::gpt2, Family::llama, Family::qwen3}) {
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      RunSpec gpu = spec(family, dtype);
      if (dtype == DType::f16) gpu.loss_scale = 256;
      const RunResult ours = run_threads(gpu), reference = run_threads(on_cpu(gpu));
      const double tolerance = dtype == DType::f32 ? 1e-5 : 1e-2;
      for (size_t i = 0; i < ours.losses.size(); ++i) {
        EXPECT_NEAR(ours.losses[i], reference.losses[i], tolerance * reference.losses[i])
            << int(family) << " " << name_of(dtype) << " step " << i;
        EXPECT_NEAR(ours.norms[i], reference.norms[i], 3 * tolerance * reference.norms[i])
            << int(family) << " " << name_of(dtype) << " step " << i;
      }
      EXPECT_EQ(ours.booked, ours.peak);
    }
  }
}

TEST_F(CudaEngine, ReplayedGraphsAndRepeatedRunsGiveTheSameBits) {
  for (Family family : {Family::llama, Family::qwen3}) {
    RunSpec graph = spec(family, DType::bf16);
    graph.steps = 5;
    graph.policy.micro_batches = 2;
    RunSpec timed = graph;
    timed.timing = zero::Timing::every;
    const RunResult first = run_threads(graph);
    EXPECT_EQ(run_threads(graph), first);
    EXPECT_EQ(run_threads(timed), first);
  }
}

// Wide enough for SwiGLU inside both of its products.
TEST_F(CudaEngine, AWideMlpStepsAsTheCpuDoesHoweverMuchIsRecomputed) {
  RunSpec gpu = spec(Family::llama, DType::bf16);
  gpu.shape = {.hidden = kFusedBackwardDepth, .heads = 20, .blocks = 1, .vocab = 160, .max_seq = 128};
  gpu.lr = 1e-4f;
  const RunResult ours = run_threads(gpu), reference = run_threads(on_cpu(gpu));
  for (size_t i = 0; i < ours.losses.size(); ++i) {
    EXPECT_NEAR(ours.losses[i], reference.losses[i], 1e-2 * reference.losses[i]) << "step " << i;
    EXPECT_NEAR(ours.norms[i], reference.norms[i], 5e-2 * reference.norms[i]) << "step " << i;
  }
  for (nn::Recompute recompute : {nn::Recompute::selective, nn::Recompute::full}) {
    gpu.policy.recompute = recompute;
    const RunResult again = run_threads(gpu);
    EXPECT_EQ(again, ours) << int(recompute);
    EXPECT_EQ(again.booked, again.peak);
  }
}

// Sampled in `make test`, whole in `make test-full`.
TEST_F(CudaEngine, SettingsGiveTheSameBits) {
  int index = 0;
  for (Family family : {Family::gpt2, Family::llama, Family::qwen3}) {
    for (int world : {1, 2, 3, 4}) {
      RunSpec base = spec(family, world % 2 == 0 ? DType::f32 : DType::bf16);
      base.world = world;
      const RunResult reference = run_threads(base);
      for (int stage : {0, 1, 2, 3}) {
        for (bool overlap : {true, false}) {
          for (int64_t bucket : {int64_t(5000), int64_t(1) << 40}) {
            for (nn::Recompute recompute :
                 {nn::Recompute::none, nn::Recompute::selective, nn::Recompute::full}) {
              if (!kFull && random_bits(5, uint64_t(world), uint64_t(index++)) % 6 != 0) continue;
              RunSpec other = base;
              apply_stage(other.policy, stage);
              other.policy.overlap = overlap;
              other.policy.reduce_bucket = other.policy.gather_bucket = bucket;
              other.policy.recompute = recompute;
              other.policy.recompute_blocks = index % 3 == 0 ? 1 : -1;
              const RunResult result = run_threads(other);
              ASSERT_EQ(result, reference)
                  << "family " << int(family) << " world " << world << " stage " << stage << " overlap "
                  << overlap << " bucket " << bucket << " recompute " << int(recompute);
              ASSERT_EQ(result.booked, result.peak);
            }
          }
        }
      }
    }
  }
}

// Whatever is sharded over which axes of a mesh, in one level or two.
TEST_F(CudaEngine, MeshesGiveTheSameBits) {
  for (const auto& [world, inner] : {std::pair{4, 2}, {4, 1}, {8, 4}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      RunSpec base = spec(Family::llama, dtype);
      base.world = world;
      base.steps = 2;
      const RunResult reference = run_threads(base);
      for (const zero::Placements& placements : zero::all_placements()) {
        RunSpec other = base;
        other.inner = inner;
        placements.apply(other.policy);
        other.policy.reduce_bucket = other.policy.gather_bucket = 20'000;
        other.policy.overlap = world == 4;
        const RunResult result = run_threads(other);
        EXPECT_EQ(result, reference) << world / inner << " x " << inner << ", " << placements.name;
        EXPECT_EQ(result.booked, result.peak) << placements.name;
      }
    }
  }
}

// GPU threads meet inside every call: what the matcher has proved must hold on the device too.
TEST_F(CudaEngine, PipelinesGiveTheBitsOfOneStage) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int stage : {0, 1, 3}) {
      RunSpec one = spec(Family::llama, dtype);
      one.world = 2;
      one.policy.micro_batches = 4;
      one.policy.order = zero::Order::horizontal;
      zero::apply_stage(one.policy, stage);
      const RunResult reference = run_threads(one);
      for (const bool overlap : {true, false}) {
        RunSpec staged = one;
        staged.world *= staged.pipe = 2;
        staged.policy.overlap = overlap;
        const RunResult result = run_threads(staged);
        EXPECT_EQ(result, reference) << name_of(dtype) << ", ZeRO " << stage << ", overlap " << overlap;
        EXPECT_EQ(result.booked, result.peak);
      }
    }
  }
}

TEST_F(CudaEngine, SharedSequencesTrainAsWholeOnes) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    RunSpec whole = spec(Family::llama, dtype);
    const RunResult reference = run_threads(whole);
    RunSpec shared = whole;
    shared.world *= shared.context = 2;
    const RunResult result = run_threads(shared);
    for (size_t i = 0; i < reference.losses.size(); ++i)
      EXPECT_NEAR(result.losses[i], reference.losses[i], dtype == DType::f32 ? 1e-3 : 3e-2);
    EXPECT_EQ(result.booked, result.peak);
    shared.policy.overlap = !shared.policy.overlap;
    shared.policy.recompute = nn::Recompute::full;
    EXPECT_EQ(run_threads(shared), result) << name_of(dtype);
  }
}

TEST_F(CudaEngine, WorldSizesGiveTheSameBitsWhenReproducible) {
  RunSpec spec = CudaEngine::spec(Family::llama, DType::bf16);
  spec.policy.reproducible = true;
  spec.policy.micro_batches = 4;
  const RunResult reference = run_threads(spec);
  for (int world : {2, 4}) {
    for (int stage : {0, 3}) {
      RunSpec other = spec;
      other.world = world;
      other.policy.micro_batches = 4 / world;
      apply_stage(other.policy, stage);
      EXPECT_EQ(run_threads(other), reference) << "world " << world << " stage " << stage;
    }
  }
}

}  // namespace
}  // namespace zeno::cuda_tests
