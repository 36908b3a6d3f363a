#include "zeno/config/loss_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "zeno/base/error.h"

namespace zeno::config {
namespace {

// Runs a sequence ('.' clean, 'x' overflow) and returns the scale after each step.
std::vector<double> run(LossScaler& scaler, const std::string& steps) {
  std::vector<double> scales;
  for (const char step : steps) {
    scaler.update(step == 'x');
    scales.push_back(scaler.state().scale);
  }
  return scales;
}

TEST(LossScale, DoublesEachWindowWithoutOverflow) {
  LossScaler scaler({.initial_scale_power = 8, .window = 2});
  double expected = 256;
  EXPECT_EQ(scaler.scale(), 256.0f);
  for (int i = 0; i < 40; ++i) {
    scaler.update(false);
    // The first growth comes at step index `window`: s = it - last - 1 = it, and s = 0 does not count.
    if (i > 0 && i % 2 == 0) expected *= 2;
    EXPECT_EQ(scaler.state().scale, expected) << i;
    EXPECT_EQ(scaler.state().iteration, i + 1);
  }
}

TEST(LossScale, HalvesEachOverflowDownToTheMinimum) {
  LossScaler scaler({.initial_scale_power = 4, .window = 2, .hysteresis = 1, .min_loss_scale = 0.25});
  EXPECT_EQ(run(scaler, "xxxxxx"), (std::vector<double>{8, 4, 2, 1, 0.5, 0.25}));
  EXPECT_EQ(scaler.state().iteration, 6);
  EXPECT_EQ(scaler.state().last_overflow, 5);
  try {
    scaler.update(true);
    FAIL() << "an overflow at the minimum must end the run";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("learning rate"), std::string::npos);
  }
}

TEST(LossScale, MixedSequenceExactValues) {
  LossScaler scaler({.initial_scale_power = 8, .window = 2, .hysteresis = 1});
  // Two overflows, then window + 1 clean steps for a growth, one more overflow, then growth again.
  EXPECT_EQ(run(scaler, "xx"), (std::vector<double>{128, 64}));
  EXPECT_EQ(run(scaler, "..."), (std::vector<double>{64, 64, 128}));
  EXPECT_EQ(run(scaler, "x"), (std::vector<double>{64}));
  EXPECT_EQ(run(scaler, "....."), (std::vector<double>{64, 64, 128, 128, 256}));
}

TEST(LossScale, HysteresisHoldsTheFirstOverflows) {
  LossScaler scaler({.initial_scale_power = 10, .window = 3, .hysteresis = 3});
  EXPECT_EQ(run(scaler, "xxxxx"),
            (std::vector<double>{1024, 1024, 512, 256, 128}));  // spent: every further one halves
  EXPECT_EQ(scaler.state().hysteresis_left, 1);
  // Growth after window + 1 clean steps refills it.
  EXPECT_EQ(run(scaler, "...."), (std::vector<double>{128, 128, 128, 256}));
  EXPECT_EQ(scaler.state().hysteresis_left, 3);
  EXPECT_EQ(run(scaler, "xxx"), (std::vector<double>{256, 256, 128}));
  // A clean step that does not grow leaves it spent.
  EXPECT_EQ(run(scaler, ".x.x"), (std::vector<double>{128, 64, 64, 32}));
}

TEST(LossScale, ConsecutiveHysteresisRefillsAfterACleanStep) {
  LossScaler scaler(
      {.initial_scale_power = 10, .window = 100, .hysteresis = 2, .consecutive_hysteresis = true});
  EXPECT_EQ(run(scaler, "x.x.x."), std::vector<double>(6, 1024));
  EXPECT_EQ(run(scaler, "xxx."), (std::vector<double>{1024, 512, 256, 256}));
  EXPECT_EQ(run(scaler, "xx"), (std::vector<double>{256, 128}));
}

// The rule in the words of the reference study, step by step, against long pseudo-random sequences.
TEST(LossScale, LongSequencesFollowTheRule) {
  for (const int64_t hysteresis : {1, 2, 5}) {
    for (const bool consecutive : {false, true}) {
      for (const int64_t window : {1, 3, 7}) {
        LossScaler scaler({.initial_scale_power = 20,
                           .window = window,
                           .hysteresis = hysteresis,
                           .consecutive_hysteresis = consecutive,
                           .min_loss_scale = 1e-300});
        double scale = 1 << 20;
        int64_t left = hysteresis, last = -1;
        uint32_t noise = 12345;
        for (int64_t it = 0; it < 400; ++it) {
          noise = noise * 1664525u + 1013904223u;
          const bool overflow = (noise >> 24) < 40;
          if (overflow) {
            if (left == 1) {
              scale = std::max(scale / 2, 1e-300);
            } else {
              --left;
            }
            last = it;
          } else {
            if (consecutive) left = hysteresis;
            const int64_t clean = it - last - 1;
            if (clean > 0 && clean % window == 0) {
              scale = std::min(scale * 2, std::ldexp(1.0, 126));
              left = hysteresis;
            }
          }
          scaler.update(overflow);
          ASSERT_EQ(scaler.state().scale, scale) << it;
          ASSERT_EQ(scaler.state().hysteresis_left, left) << it;
        }
      }
    }
  }
}

TEST(LossScale, StaticScaleNeverChanges) {
  LossScaler scaler({.loss_scale = 138, .window = 1, .hysteresis = 1});
  EXPECT_EQ(run(scaler, "x.x..xxxx....."), std::vector<double>(14, 138));
}

TEST(LossScale, StateSurvivesARestart) {
  const LossScaleConfig config{.initial_scale_power = 12, .window = 4, .hysteresis = 2};
  LossScaler whole(config), first(config), second(config);
  const std::string steps = "..x....x.....xx......";
  run(first, steps.substr(0, 9));
  second.restore(first.state());
  std::vector<double> expected = run(whole, steps);
  expected.erase(expected.begin(), expected.begin() + 9);
  EXPECT_EQ(run(second, steps.substr(9)), expected);
}

// Somebody who gives a scale when going on means it.
TEST(LossScale, AFixedScaleIsTheConfigsAlsoAfterARestart) {
  LossScaler dynamic(LossScaleConfig{.initial_scale_power = 16}), fixed({.loss_scale = 128});
  fixed.restore(dynamic.state());
  EXPECT_EQ(fixed.scale(), 128);
  dynamic.restore(fixed.state());
  EXPECT_EQ(dynamic.scale(), 128);
}

TEST(LossScale, GrowthStopsBeforeTheScaleOverflows) {
  LossScaler scaler({.initial_scale_power = 126, .window = 1});
  for (int i = 0; i < 10; ++i) scaler.update(false);
  EXPECT_TRUE(std::isfinite(scaler.scale()));
}

TEST(LossScale, Validation) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {-1.0, inf, -inf, std::nan(""), 1e300}) {
    EXPECT_THROW(LossScaler({.loss_scale = bad}), Error) << bad;
  }
  EXPECT_THROW(LossScaler({.window = 0}), Error);
  EXPECT_THROW(LossScaler({.min_loss_scale = 0}), Error);
  EXPECT_THROW(LossScaler({.hysteresis = 0}), Error);
  EXPECT_THROW(LossScaler({.initial_scale_power = 200}), Error);
  // They do not matter, and are not refused, when the scale is fixed.
  EXPECT_NO_THROW(LossScaler({.loss_scale = 8, .window = 0, .hysteresis = 0, .min_loss_scale = -1}));
}

}  // namespace
}  // namespace zeno::config
