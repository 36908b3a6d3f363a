#include "zeno/train/loss_watch.h"

#include <gtest/gtest.h>

#include <cmath>

namespace zeno::train {
namespace {

using Verdict = LossWatch::Verdict;

LossWatch warm(config::WatchConfig config, bool fp16 = false) {
  LossWatch watch(config, fp16);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(watch.look(2, false), Verdict::good);
  return watch;
}

TEST(LossWatch, TellsASpike) {
  LossWatch watch = warm({});
  EXPECT_EQ(watch.mean(), 2);
  EXPECT_EQ(watch.look(6, false), Verdict::good);  // exactly three times
  EXPECT_EQ(watch.look(8, false), Verdict::spike);
  EXPECT_EQ(watch.bad_in_a_row(), 1);
  EXPECT_EQ(watch.look(2, false), Verdict::good);
  EXPECT_EQ(watch.bad_in_a_row(), 0);
  LossWatch off = warm({.spike_factor = 0});
  EXPECT_EQ(off.look(1e9, false), Verdict::good);
}

TEST(LossWatch, TheFirstStepsMayDoWhatTheyWant) {
  LossWatch watch({}, false);
  EXPECT_EQ(watch.look(1, false), Verdict::good);
  EXPECT_EQ(watch.look(100, false), Verdict::good);
}

TEST(LossWatch, TellsWhatIsNotFinite) {
  for (const double loss : {std::nan(""), double(INFINITY), -double(INFINITY)}) {
    LossWatch watch({}, true);
    EXPECT_EQ(watch.look(loss, false), Verdict::not_finite);
    EXPECT_EQ(watch.mean(), 0);  // and keeps it out of the mean
  }
  LossWatch watch = warm({});
  EXPECT_EQ(watch.look(2, true), Verdict::not_finite);  // the gradient
  // With a loss scale an overflow is part of the search for it.
  LossWatch fp16 = warm({}, true);
  EXPECT_EQ(fp16.look(2, true), Verdict::good);
}

TEST(LossWatch, GivesUpAfterAsManyAsAllowed) {
  LossWatch watch = warm({.max_bad_steps = 3});
  watch.look(std::nan(""), true);
  watch.look(100, false);
  EXPECT_FALSE(watch.give_up());
  watch.look(std::nan(""), true);
  EXPECT_TRUE(watch.give_up());
  LossWatch never = warm({});
  for (int i = 0; i < 100; ++i) never.look(std::nan(""), true);
  EXPECT_FALSE(never.give_up());
}

// A loss that stays high becomes the new normal.
TEST(LossWatch, AdaptsToANewLevel) {
  LossWatch watch = warm({});
  int spikes = 0;
  for (int i = 0; i < 30; ++i) spikes += watch.look(10, false) == Verdict::spike;
  EXPECT_GT(spikes, 0);
  EXPECT_LT(spikes, 10);
}

}  // namespace
}  // namespace zeno::train
