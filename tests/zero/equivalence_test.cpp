// Promise 1: at a given world size, every stage, bucket size, prefetch depth, overlap and recompute setting
// gives the same losses and the same weights to the last bit. `make test` runs a sample of the matrix, `make
// test-full` all of it (ZENO_FULL_TESTS is set by CMake for that target).
#include <gtest/gtest.h>

#include "tests/support/full_tests.h"
#include "tests/support/train_run.h"
#include "zeno/base/rng.h"

namespace zeno::zero {
namespace {

using test::Family;
using test::kFull;
using test::run_threads;
using test::RunResult;
using test::RunSpec;

struct Case {
  Family family;
  DType dtype;
  int world;
};

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const char* families[] = {"gpt2", "llama", "qwen3"};
  return std::string(families[int(info.param.family)]) + "_" + std::string(name_of(info.param.dtype)) +
         "_world" + std::to_string(info.param.world);
}

class Equivalence : public testing::TestWithParam<Case> {
 protected:
  RunSpec spec() const {
    RunSpec spec;
    spec.family = GetParam().family;
    spec.world = GetParam().world;
    spec.policy.compute = GetParam().dtype;
    return spec;
  }

  // All settings of a stage; a sampled run takes about one in `stride` of them, spread by a hash.
  void expect_all_equal(RunSpec base, std::initializer_list<int> stages, const RunResult& reference) {
    int index = 0, ran = 0;
    for (int stage : stages) {
      for (bool overlap : {true, false}) {
        for (int64_t bucket : {int64_t(500), int64_t(6000), int64_t(1) << 40}) {
          for (int64_t prefetch : {0, 8000, 20000}) {
            for (nn::Recompute recompute :
                 {nn::Recompute::none, nn::Recompute::selective, nn::Recompute::full}) {
              if (!kFull && random_bits(11, uint64_t(GetParam().world), uint64_t(index++)) % 9 != 0) continue;
              RunSpec spec = base;
              apply_stage(spec.policy, stage);
              spec.policy.overlap = overlap;
              spec.policy.reduce_bucket = spec.policy.gather_bucket = bucket;
              spec.policy.prefetch = prefetch;
              spec.policy.recompute = recompute;
              spec.policy.recompute_every = 1 + index % 2;
              // Some with one block of the kind, the others recomputing less.
              spec.policy.recompute_blocks = index % 3 == 0 ? 1 : -1;
              spec.policy.recompute_rest = index % 2 == 0 ? nn::Recompute::selective : nn::Recompute::none;
              const RunResult result = run_threads(spec);
              ++ran;
              ASSERT_EQ(result.losses, reference.losses) << "stage " << stage << " bucket " << bucket;
              ASSERT_EQ(result.norms, reference.norms) << "stage " << stage << " bucket " << bucket;
              ASSERT_EQ(result.hash, reference.hash)
                  << "stage " << stage << " bucket " << bucket << " prefetch " << prefetch << " recompute "
                  << int(recompute);
              ASSERT_EQ(result.booked, result.peak);
            }
          }
        }
      }
    }
    EXPECT_GT(ran, 0);
  }
};

TEST_P(Equivalence, WithoutAccumulation) {
  RunSpec base = spec();
  const RunResult reference = run_threads(base);
  expect_all_equal(base, {0, 1, 2, 3}, reference);
}

TEST_P(Equivalence, FourMicroBatchesInVerticalOrder) {
  RunSpec base = spec();
  base.policy.micro_batches = 4;
  base.policy.order = Order::vertical;
  const RunResult reference = run_threads(base);
  expect_all_equal(base, {0, 1, 2, 3}, reference);
  // Replicated gradients are summed over micro-batches in the same order by horizontal runs. (A tied
  // embedding is touched twice per micro-batch, so there the two orders add in different turns.)
  RunSpec horizontal = base;
  horizontal.policy.order = Order::horizontal;
  const RunResult one_by_one = run_threads(horizontal);
  EXPECT_TRUE(one_by_one == reference || GetParam().family != Family::llama);
  apply_stage(horizontal.policy, 1);
  EXPECT_EQ(run_threads(horizontal), one_by_one);
}

TEST_P(Equivalence, HorizontalShardedGradientsAreAClassOfTheirOwn) {
  RunSpec base = spec();
  base.policy.micro_batches = 4;
  const RunResult replicated = run_threads(base);
  apply_stage(base.policy, 2);
  const RunResult reference = run_threads(base);
  expect_all_equal(base, {2, 3}, reference);
  for (size_t i = 0; i < reference.losses.size(); ++i) {
    const double tolerance = GetParam().dtype == DType::f32 ? 1e-5 : 2e-2;
    EXPECT_NEAR(reference.losses[i], replicated.losses[i], tolerance * replicated.losses[i]);
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (Family family : {Family::gpt2, Family::llama, Family::qwen3}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      for (int world : {1, 2, 3, 4}) {
        // Sampled: every family, dtype and world size occurs, not every combination.
        if (kFull || (int(family) + int(dtype) + world) % 3 == 0) all.push_back({family, dtype, world});
      }
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Matrix, Equivalence, testing::ValuesIn(cases()), name_of_case);

// The same global batch on 1, 2, 4 and 8 ranks: nobody else has this.
TEST(Reproducible, WorldSizesGiveTheSameBits) {
  for (Family family : {Family::gpt2, Family::llama, Family::qwen3}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      RunSpec spec;
      spec.family = family;
      spec.steps = 2;
      spec.policy.compute = dtype;
      spec.policy.reproducible = true;
      spec.policy.micro_batches = 8;
      const RunResult reference = run_threads(spec);
      for (int world : {2, 4, 8}) {
        for (int stage : {0, 1, 2, 3}) {
          if (!kFull && stage != (world + int(family)) % 4) continue;
          RunSpec other = spec;
          other.world = world;
          other.policy.micro_batches = 8 / world;
          apply_stage(other.policy, stage);
          EXPECT_EQ(run_threads(other), reference) << "world " << world << " stage " << stage;
        }
      }
    }
  }
}

}  // namespace
}  // namespace zeno::zero
