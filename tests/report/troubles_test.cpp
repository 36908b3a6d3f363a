// The detectors, fed with made-up steps: each speaks when it must, once, and not otherwise.
#include "zeno/report/troubles.h"

#include <gtest/gtest.h>

namespace zeno::report {
namespace {

constexpr int64_t kEnough = Troubles::kWarmUp + Troubles::kWindow;

// 100 ms, of which so much goes to ...
Observation step_of(zero::RankTimes spent) {
  Observation o;
  o.step_ms = 100;
  o.spent = spent;
  return o;
}

std::vector<Trouble> feed(Troubles& troubles, const Observation& o, int64_t steps) {
  std::vector<Trouble> told;
  for (int64_t i = 0; i < steps; ++i) {
    for (const Trouble& t : troubles.look(o)) told.push_back(t);
  }
  return told;
}

TEST(Troubles, ARunThatComputesHasNone) {
  Troubles troubles;
  EXPECT_TRUE(feed(troubles, step_of({.compute = 95, .communication = 5}), 500).empty());
  EXPECT_TRUE(troubles.all().empty());
}

TEST(Troubles, EachKindIsToldOnceWithItsShare) {
  struct Case {
    TroubleKind kind;
    zero::RankTimes spent;
  };
  for (const Case& c : {Case{TroubleKind::communication, {.compute = 70, .communication = 30}},
                        Case{TroubleKind::link, {.compute = 70, .link = 30}},
                        Case{TroubleKind::disk, {.compute = 70, .disk = 30}},
                        Case{TroubleKind::data, {.compute = 70, .data = 30}}}) {
    Troubles troubles;
    const std::vector<Trouble> told = feed(troubles, step_of(c.spent), 500);
    ASSERT_EQ(told.size(), 1u) << int(c.kind);
    EXPECT_EQ(told[0].kind, c.kind);
    EXPECT_NEAR(told[0].share, 0.3, 1e-6);
    EXPECT_EQ(told[0].steps, Troubles::kWindow);
    ASSERT_EQ(troubles.all().size(), 1u);
    EXPECT_EQ(troubles.all()[0].kind, c.kind);
  }
}

TEST(Troubles, BelowTheLimitNothingIsSaid) {
  for (const zero::RankTimes& spent :
       {zero::RankTimes{.compute = 86, .communication = 14}, zero::RankTimes{.compute = 86, .disk = 14},
        zero::RankTimes{.compute = 91, .data = 9}}) {
    Troubles troubles;
    EXPECT_TRUE(feed(troubles, step_of(spent), 500).empty());
  }
}

TEST(Troubles, ShortRunsAreSilentAndWarmUpDoesNotCount) {
  Troubles troubles;
  EXPECT_TRUE(feed(troubles, step_of({.compute = 70, .communication = 30}), kEnough - 1).empty());
  EXPECT_TRUE(troubles.all().empty());
  Troubles cold;  // slow first steps, then all is well
  feed(cold, step_of({.data = 1e6}), Troubles::kWarmUp);
  EXPECT_TRUE(feed(cold, step_of({.compute = 100}), 100).empty());
  EXPECT_TRUE(cold.all().empty());
}

TEST(Troubles, AHiccupOfShortStepsIsNoTrouble) {
  Observation small = step_of({.compute = 0.5, .communication = 0.5});
  small.step_ms = 1;
  Troubles troubles;
  EXPECT_TRUE(feed(troubles, small, 1002).empty());
  EXPECT_TRUE(troubles.all().empty());
  EXPECT_EQ(feed(troubles, small, 1).size(), 1u);  // for a second
  EXPECT_EQ(troubles.all().size(), 1u);
}

// On GPUs: one step of eleven tells how it was spent, all of them what they waited for samples.
std::vector<Trouble> feed_sampled(Troubles& troubles, const Observation& o, int64_t steps) {
  constexpr int64_t kEvery = 11;
  std::vector<Trouble> told;
  for (int64_t i = 0; i < steps; ++i) {
    Observation seen = o;
    if (i % kEvery != 0) {
      seen.spent = {.data = o.spent.data};
      seen.slowest = 0;
    }
    for (const Trouble& t : troubles.look(seen)) told.push_back(t);
  }
  return told;
}

TEST(Troubles, ASampleOfTheStepsStandsForAll) {
  Troubles troubles;
  const Observation o = step_of({.compute = 70, .communication = 30});
  const int64_t enough = 11 * Troubles::kWindow + 1;  // the first of them is warm-up
  EXPECT_TRUE(feed_sampled(troubles, o, enough - 1).empty());
  EXPECT_FALSE(troubles.sure());
  Observation last = o;
  const std::vector<Trouble> told = troubles.look(last);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, TroubleKind::communication);
  EXPECT_NEAR(told[0].share, 0.3, 1e-6);
  EXPECT_EQ(told[0].steps, Troubles::kWindow);
  EXPECT_TRUE(troubles.sure());
}

TEST(Troubles, SampledStepsNameTheSlowRankAndAllStepsTheData) {
  Observation o = step_of({.compute = 98});
  o.slowest = 3;
  o.others_ms = 70;
  Troubles slow;
  const std::vector<Trouble> told = feed_sampled(slow, o, 400);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, TroubleKind::slow_rank);
  EXPECT_EQ(told[0].rank, 3);
  EXPECT_NEAR(told[0].ratio, 1.4, 1e-6);

  Troubles waits;
  const std::vector<Trouble> data = feed_sampled(waits, step_of({.compute = 70, .data = 30}), 400);
  ASSERT_EQ(data.size(), 1u);
  EXPECT_EQ(data[0].kind, TroubleKind::data);
  EXPECT_NEAR(data[0].share, 0.3, 1e-6);
  EXPECT_GT(data[0].steps, 200);
}

TEST(Troubles, WithoutATimedStepNothingIsSaid) {
  Troubles troubles;
  EXPECT_TRUE(feed(troubles, step_of({.data = 30}), 500).empty());
  EXPECT_FALSE(troubles.sure());
}

TEST(Troubles, ToldAgainWhenMuchWorseOrBackAgain) {
  Troubles troubles;
  EXPECT_EQ(feed(troubles, step_of({.compute = 80, .communication = 20}), 100).size(), 1u);
  EXPECT_EQ(feed(troubles, step_of({.compute = 75, .communication = 25}), 100).size(), 0u);
  EXPECT_EQ(feed(troubles, step_of({.compute = 40, .communication = 60}), 100).size(),
            2u);  // on its way, and there
  EXPECT_EQ(feed(troubles, step_of({.compute = 99, .communication = 1}), 100).size(), 0u);
  EXPECT_EQ(feed(troubles, step_of({.compute = 80, .communication = 20}), 100).size(), 1u);
}

TEST(Troubles, ObservationsTakeTheSlowestRankAndTheMiddleOfTheOthers) {
  const std::vector<zero::RankTimes> ranks{
      {.compute = 50, .communication = 50}, {.compute = 99, .data = 1}, {.compute = 60}, {.compute = 70}};
  const Observation o = observe(ranks);
  EXPECT_EQ(o.slowest, 1);
  EXPECT_EQ(o.spent.compute, 99);
  EXPECT_EQ(o.others_ms, 60);
  EXPECT_EQ(observe(std::vector{ranks[0]}).others_ms, 0);
  EXPECT_EQ(observe({}).slowest, 0);
}

Observation slow(int rank, zero::RankTimes spent, double others) {
  Observation o = step_of(spent);
  o.slowest = rank;
  o.others_ms = others;
  return o;
}

TEST(Troubles, ASlowRankIsNamedWithItsFactorAndPart) {
  Troubles troubles;
  const std::vector<Trouble> told = feed(troubles, slow(3, {.compute = 98, .communication = 2}, 70), 200);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, TroubleKind::slow_rank);
  EXPECT_EQ(told[0].rank, 3);
  EXPECT_NEAR(told[0].ratio, 1.4, 1e-6);
  EXPECT_NEAR(told[0].share, 0.28, 1e-6);
  EXPECT_EQ(told[0].part, Trouble::Part::compute);
  // Another one is news.
  const std::vector<Trouble> other = feed(troubles, slow(1, {.compute = 98}, 70), 200);
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0].rank, 1);
}

TEST(Troubles, WhatOnlyOneRankWaitsForIsThatRanksTrouble) {
  Troubles troubles;
  const std::vector<Trouble> told = feed(troubles, slow(1, {.compute = 50, .data = 50}, 50), 200);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, TroubleKind::slow_rank);
  EXPECT_EQ(told[0].part, Trouble::Part::data);
  Troubles all;  // that all wait for is nobody's own
  const std::vector<Trouble> same = feed(all, slow(1, {.compute = 50, .data = 50}, 98), 200);
  ASSERT_EQ(same.size(), 1u);
  EXPECT_EQ(same[0].kind, TroubleKind::data);
}

TEST(Troubles, RanksThatAreSlowInTurnAreNotSlow) {
  Troubles troubles;
  for (int i = 0; i < 400; ++i) EXPECT_TRUE(troubles.look(slow(i % 2, {.compute = 98}, 70)).empty());
}

Observation scaled(double scale, bool skipped) {
  Observation o = step_of({.compute = 100});
  o.loss_scale = scale;
  o.skipped = skipped;
  return o;
}

TEST(Troubles, OverflowsAreToldAtOnceAndASearchThatEndsIsForgotten) {
  Troubles troubles;
  EXPECT_TRUE(feed(troubles, scaled(65536, true), 4).empty());
  const std::vector<Trouble> told = feed(troubles, scaled(32768, true), 1);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, TroubleKind::loss_scale);
  EXPECT_EQ(told[0].skipped, 5);
  EXPECT_EQ(told[0].scale, 32768);
  EXPECT_EQ(troubles.all().size(), 1u);
  EXPECT_TRUE(feed(troubles, scaled(32768, false), 200).empty());
  EXPECT_TRUE(troubles.all().empty());
  EXPECT_TRUE(feed(troubles, scaled(32768, true), 4).empty());
}

TEST(Troubles, AScaleThatFellToNothingIsTold) {
  Troubles troubles;
  for (double scale = 65536; scale > 16; scale /= 2)
    EXPECT_TRUE(feed(troubles, scaled(scale, false), 30).empty());
  EXPECT_EQ(feed(troubles, scaled(16, false), 30).size(), 1u);
  Troubles fixed;  // as the user wants it
  EXPECT_TRUE(feed(fixed, scaled(8, false), 100).empty());
}

TEST(Troubles, SavesThatTakeATenthAreTold) {
  const auto run = [](double stall, double beside) {
    Troubles troubles;
    std::vector<Trouble> told;
    for (int step = 0; step < 200; ++step) {
      Observation o = step_of({.compute = 100});
      if (step % 10 == 9) o.saved_ms = stall;
      o.saving = step % 10 == 9;
      if (o.saving) o.step_ms += beside;
      for (const Trouble& t : troubles.look(o)) told.push_back(t);
    }
    return told;
  };
  EXPECT_TRUE(run(20, 20).empty());
  for (const auto& told : {run(200, 0), run(1, 200)}) {
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].kind, TroubleKind::checkpoint);
    EXPECT_NEAR(told[0].share, 0.16, 0.05);
  }
}

TEST(Troubles, TheWorstComesFirst) {
  Troubles troubles;
  feed(troubles, step_of({.compute = 40, .communication = 20, .data = 40}), 100);
  const std::vector<Trouble> all = troubles.all();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].kind, TroubleKind::data);
  EXPECT_EQ(all[1].kind, TroubleKind::communication);
}

}  // namespace
}  // namespace zeno::report
