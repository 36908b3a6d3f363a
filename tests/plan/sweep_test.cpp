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
  for (const int world : {64, 1024, 16'384}) {
    const SweepPoint point = sweep_point(question, world);
    EXPECT_LT(point.row.bytes.total(Tier::device), before.row.bytes.total(Tier::device));
    EXPECT_GT(point.time.tokens_per_s, before.time.tokens_per_s);
    EXPECT_LE(point.time.tokens_per_s / world, before.time.tokens_per_s / before.world);
    EXPECT_LE(point.good, before.good);
    EXPECT_GT(point.good, 0.5);
    EXPECT_GE(point.interval, point.time.step_s);
    before = point;
  }
}

}  // namespace
}  // namespace zeno::plan
