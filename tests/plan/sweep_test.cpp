#include "zeno/plan/sweep.h"

#include <gtest/gtest.h>

#include "tests/support/model_shapes.h"

namespace zeno::plan {
namespace {

TEST(Sweep, MoreRanksNeedLessFailMoreAndGainLess) {
  const nn::LayerList layers = test::shape_of(test::kQwen14B, 2048);
  zero::EngineOptions options;
  options.policy.compute = DType::bf16;
  options.shape = {1, 2048};
  options.device = {Device::Kind::cuda, 0};
  const SweepQuestion question{.model = {layers, {}},
                               .options = options,
                               .setting = {3, Homes::device, nn::Recompute::full, 4},
                               .machine = named_machine("h100-8"),
                               .failure_hours = 50'000,
                               .restart_s = 300};
  SweepPoint before = sweep_point(question, 8);
  for (const int ranks : {64, 1024, 16'384}) {
    const SweepPoint point = sweep_point(question, ranks);
    EXPECT_LT(point.row.bytes.total(Tier::device), before.row.bytes.total(Tier::device));
    EXPECT_GT(point.time.tokens_per_s, before.time.tokens_per_s);
    EXPECT_LE(point.time.tokens_per_s / ranks, before.time.tokens_per_s / before.ranks);
    EXPECT_LE(point.good, before.good);
    EXPECT_GT(point.good, 0.5);
    EXPECT_GE(point.interval, point.time.step_s);
    before = point;
  }
}

// On many hosts groups of them hold a copy of the parameters: rings over all would cost latency at every
// gather.
TEST(Sweep, ManyRanksWorkInGroups) {
  const nn::LayerList layers = test::shape_of(test::kQwen14B, 2048);
  zero::EngineOptions options;
  options.policy.compute = DType::bf16;
  options.policy.prefetch = int64_t(6e9);
  options.policy.max_live = int64_t(2e10);
  options.shape = {1, 2048};
  options.device = {Device::Kind::cuda, 0};
  SweepQuestion question{.model = {layers, {}},
                         .options = options,
                         .mesh = {.ranks_per_host = 8},
                         .setting = {3, Homes::device, nn::Recompute::full, 4, true},
                         .machine = named_machine("h100-8"),
                         .failure_hours = 50'000,
                         .restart_s = 300};
  EXPECT_EQ(sweep_point(question, 8).row.setting.groups.ranks, 0);
  const SweepPoint searched = sweep_point(question, 16'384);
  EXPECT_GT(searched.row.setting.groups.ranks, 0);
  EXPECT_TRUE(searched.row.fits());
  question.mesh.group = 16'384;  // one row of ranks, as if there were no hosts
  EXPECT_GT(searched.time.tokens_per_s, 2 * sweep_point(question, 16'384).time.tokens_per_s);
}

}  // namespace
}  // namespace zeno::plan
