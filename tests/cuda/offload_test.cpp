// Offload on a GPU: the bits of a run that keeps everything on the device, for every home of states and
// parameters, stage and order; checkpoints that go on in other tiers.
#include <gtest/gtest.h>

#include "tests/support/homes.h"
#include "tests/support/resume_matrix.h"
#include "tests/support/temp_dir.h"

namespace zeno::cuda_tests {
namespace {

using test::Family;
using test::Homes;
using test::run_threads;
using test::RunResult;
using test::RunSpec;

class CudaOffload : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (device_count(Device::Kind::cuda) == 0) GTEST_SKIP() << "no GPU";
  }
  test::TempDir folder_;
};

TEST_P(CudaOffload, SameBitsWhereverStatesAreKept) {
  const int world = GetParam();
  for (int stage : {0, 1, 2, 3}) {
    if (world == 1 && stage > 0) continue;  // the same program
    for (zero::Order order : {zero::Order::horizontal, zero::Order::vertical}) {
      RunSpec base;
      base.family = stage % 2 ? Family::gpt2 : Family::llama;
      base.shape = {.hidden = 64, .heads = 4, .blocks = 3, .vocab = 160, .max_seq = 128};
      base.batch = {2, 80};
      base.world = world;
      base.device = {Device::Kind::cuda, 0};
      base.steps = 4;
      base.lr = 1e-3f;
      base.policy.compute = stage == 2 ? DType::f32 : DType::bf16;
      base.policy.deterministic = true;
      base.policy.micro_batches = 2;
      base.policy.order = order;
      base.policy.prefetch = 8000;
      apply_stage(base.policy, stage);
      const RunResult reference = run_threads(base);
      for (const Homes& homes : test::all_homes()) {
        if (!homes.far || (world > 1 && stage < 3 && homes.params != Tier::device)) continue;
        RunSpec spec = base;
        homes.set(spec, folder_.path());
        const RunResult result = run_threads(spec);
        EXPECT_EQ(result, reference) << "stage " << stage << ", " << homes.text();
        EXPECT_EQ(result.booked_tiers, result.peak_tiers) << homes.text();
      }
    }
  }
}

// Checkpoints of recomputed segments in host memory, alone and with everything else away.
TEST_P(CudaOffload, SameBitsWithActivationsOnTheHost) {
  for (zero::Order order : {zero::Order::horizontal, zero::Order::vertical}) {
    for (int every : {1, 2}) {
      RunSpec base;
      base.shape = {.hidden = 64, .heads = 4, .blocks = 8, .vocab = 160, .max_seq = 128};
      base.batch = {2, 80};
      base.world = GetParam();
      base.device = {Device::Kind::cuda, 0};
      base.steps = 4;
      base.lr = 1e-3f;
      base.policy.compute = DType::bf16;
      base.policy.deterministic = true;
      base.policy.micro_batches = 3;
      base.policy.order = order;
      base.policy.recompute = nn::Recompute::full;
      base.policy.recompute_every = every;
      apply_stage(base.policy, 3);
      const RunResult reference = run_threads(base);
      for (Tier tier : kTiers) {
        RunSpec spec = base;
        Homes{tier, tier, true}.set(spec, folder_.path());
        spec.policy.offload.activations = true;
        const RunResult result = run_threads(spec);
        EXPECT_EQ(result, reference) << name_of(tier) << ", every " << every;
        EXPECT_EQ(result.booked_tiers, result.peak_tiers) << name_of(tier);
        if (tier == Tier::device) {
          EXPECT_LT(result.peak, reference.peak);
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Worlds, CudaOffload, testing::Values(1, 2));

class CudaOffloadResume : public testing::TestWithParam<test::StateTypes> {
 protected:
  void SetUp() override {
    if (device_count(Device::Kind::cuda) == 0) GTEST_SKIP() << "no GPU";
    for (const Homes& homes : test::all_homes()) {
      if (homes.far) homes_.push_back(homes);
    }
    spec_.shape = {.hidden = 64, .heads = 4, .blocks = 3, .vocab = 160, .max_seq = 128};
    spec_.batch = {2, 80};
    spec_.device = {Device::Kind::cuda, 0};
  }
  std::vector<Homes> homes_;
  RunSpec spec_;
};

TEST_P(CudaOffloadResume, FromAnyTierToAnyOther) {
  test::expect_resume_in_any_tier(spec_, GetParam(), test::resume_settings(homes_), ZENO_FULL_TESTS ? 1 : 15,
                                  1);
}

// Devices train with other bits; what one saved, the other loads as it was.
TEST_P(CudaOffloadResume, WhatACpuSavedAndTheOtherWayRound) {
  const test::TempDir disk(test::memory_folder());
  RunSpec cpu = spec_;
  cpu.device = {};
  for (const auto& [saver, loader] : {std::pair(cpu, spec_), std::pair(spec_, cpu)}) {
    for (const Homes& homes : homes_) {
      const test::ResumeSetting setting{2, 3, homes};
      const test::TempDir folder(test::memory_folder());
      const test::RunPart saved =
          run_part(setting.spec(saver, GetParam(), disk.path()), folder.path(), 0, test::kResumeSaved);
      const test::RunPart loaded = run_part(setting.spec(loader, GetParam(), disk.path()), folder.path(),
                                            test::kResumeSaved, test::kResumeSaved);
      EXPECT_EQ(loaded.hash, saved.hash) << homes.text();
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Types, CudaOffloadResume, test::kStateTypes, test::name_of_types);

}  // namespace
}  // namespace zeno::cuda_tests
