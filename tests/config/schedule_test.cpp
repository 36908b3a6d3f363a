#include "zeno/config/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "zeno/base/error.h"

namespace zeno::config {
namespace {

constexpr double kTiny = 1e-15;
constexpr double kPi = std::numbers::pi;

TEST(Schedule, ConstantWithWarmup) {
  const ScheduleConfig config{.type = ScheduleType::constant, .lr = 0.4, .warmup_steps = 4};
  const double expected[] = {0.1, 0.2, 0.3, 0.4, 0.4, 0.4};
  for (int64_t k = 0; k < 6; ++k) EXPECT_NEAR(learning_rate(config, k), expected[k], kTiny) << k;
  EXPECT_EQ(learning_rate({.lr = 0.25}, 0), 0.25);
  EXPECT_EQ(learning_rate({.lr = 0.25}, 1'000'000), 0.25);
}

TEST(Schedule, Linear) {
  const ScheduleConfig config{
      .type = ScheduleType::linear, .lr = 1, .total_steps = 12, .warmup_steps = 2, .min_ratio = 0.1};
  EXPECT_NEAR(learning_rate(config, 0), 0.5, kTiny);
  EXPECT_NEAR(learning_rate(config, 1), 1.0, kTiny);
  EXPECT_NEAR(learning_rate(config, 2), 1.0, kTiny);
  EXPECT_NEAR(learning_rate(config, 7), 0.55, kTiny);
  EXPECT_NEAR(learning_rate(config, 12), 0.1, kTiny);
  EXPECT_NEAR(learning_rate(config, 500), 0.1, kTiny);
}

TEST(Schedule, Cosine) {
  const ScheduleConfig config{.type = ScheduleType::cosine, .lr = 2, .total_steps = 8, .min_ratio = 0.5};
  EXPECT_NEAR(learning_rate(config, 0), 2, kTiny);
  EXPECT_NEAR(learning_rate(config, 2), 1 + 0.5 * (1 + std::cos(kPi / 4)), 1e-14);
  EXPECT_NEAR(learning_rate(config, 4), 1.5, 1e-14);
  EXPECT_NEAR(learning_rate(config, 8), 1, kTiny);
  EXPECT_NEAR(learning_rate(config, 9), 1, kTiny);
}

TEST(Schedule, WarmupStableDecay) {
  ScheduleConfig config{
      .type = ScheduleType::wsd, .lr = 1, .total_steps = 100, .warmup_steps = 10, .decay_steps = 20};
  EXPECT_NEAR(learning_rate(config, 4), 0.5, kTiny);
  for (int64_t k = 10; k <= 80; ++k) EXPECT_EQ(learning_rate(config, k), 1) << k;
  EXPECT_NEAR(learning_rate(config, 90), 0.5, kTiny);
  EXPECT_NEAR(learning_rate(config, 100), 0, kTiny);
  config.decay_steps = 0;  // a tenth
  EXPECT_EQ(learning_rate(config, 90), 1);
  EXPECT_NEAR(learning_rate(config, 95), 0.5, kTiny);
}

// DeepSpeed: step 1 runs with the rate set at build, step k >= 2 with the formula at t = k - 2.
TEST(Schedule, WarmupLr) {
  ScheduleConfig config{
      .type = ScheduleType::warmup_lr, .warmup_steps = 10, .warmup_min_lr = 0.1, .warmup_max_lr = 0.2};
  EXPECT_EQ(learning_rate(config, 0), 0.1);
  EXPECT_EQ(learning_rate(config, 1), 0.1);
  for (int64_t t = 0; t < 10; ++t) {
    EXPECT_NEAR(learning_rate(config, t + 1), 0.1 + 0.1 * std::log(t + 1.0) / std::log(10.0), kTiny) << t;
  }
  for (int64_t t = 10; t < 30; ++t) EXPECT_NEAR(learning_rate(config, t + 1), 0.2, kTiny);
  config.warmup_type = WarmupType::linear;
  for (int64_t t = 0; t < 10; ++t)
    EXPECT_NEAR(learning_rate(config, t + 1), 0.1 + 0.1 * t / 10.0, kTiny) << t;
  EXPECT_NEAR(learning_rate(config, 11), 0.2, kTiny);
}

TEST(Schedule, WarmupOfLessThanTwoStepsIsTwo) {
  for (const int64_t warmup : {0, 1, 2}) {
    const ScheduleConfig config{
        .type = ScheduleType::warmup_lr, .warmup_steps = warmup, .warmup_min_lr = 0, .warmup_max_lr = 1};
    EXPECT_EQ(learning_rate(config, 0), 0);
    EXPECT_EQ(learning_rate(config, 1), 0);
    EXPECT_NEAR(learning_rate(config, 2), 1, kTiny);  // ln 2 / ln 2
    EXPECT_EQ(learning_rate(config, 3), 1);
  }
}

TEST(Schedule, WarmupDecayLr) {
  const ScheduleConfig config{.type = ScheduleType::warmup_decay_lr,
                              .total_steps = 20,
                              .warmup_steps = 10,
                              .warmup_type = WarmupType::linear,
                              .warmup_min_lr = 0.1,
                              .warmup_max_lr = 0.2};
  EXPECT_EQ(learning_rate(config, 0), 0.1);
  EXPECT_NEAR(learning_rate(config, 6), 0.15, kTiny);   // t = 5
  EXPECT_NEAR(learning_rate(config, 11), 0.2, kTiny);   // t = 10: (20 - 10) / 10
  EXPECT_NEAR(learning_rate(config, 16), 0.15, kTiny);  // t = 15
  EXPECT_NEAR(learning_rate(config, 21), 0.1, kTiny);   // t = 20: the minimum again
  EXPECT_NEAR(learning_rate(config, 90), 0.1, kTiny);
}

TEST(Schedule, WarmupCosineLr) {
  const ScheduleConfig config{.type = ScheduleType::warmup_cosine_lr,
                              .lr = 0.5,
                              .total_steps = 30,
                              .warmup_steps = 10,
                              .warmup_type = WarmupType::linear,
                              .warmup_min_ratio = 0.2,
                              .cos_min_ratio = 0.1};
  EXPECT_EQ(learning_rate(config, 0), 0);
  EXPECT_NEAR(learning_rate(config, 1), 0.5 * 0.2, kTiny);
  EXPECT_NEAR(learning_rate(config, 6), 0.5 * (0.2 + 0.8 * 0.5), kTiny);
  for (int64_t t = 10; t < 30; ++t) {
    const double ratio = 0.1 + 0.9 * (1 + std::cos(kPi * static_cast<double>(t - 9) / 20)) / 2;
    EXPECT_NEAR(learning_rate(config, t + 1), 0.5 * ratio, kTiny) << t;
  }
  EXPECT_NEAR(learning_rate(config, 1000), 0.05, kTiny);  // does not rise again
}

TEST(Schedule, OneCycle) {
  ScheduleConfig config{.type = ScheduleType::one_cycle};
  config.one_cycle = {
      .min_lr = 0.1, .max_lr = 0.5, .first_steps = 4, .second_steps = 8, .decay_steps = 2, .decay_rate = 0.5};
  EXPECT_NEAR(learning_rate(config, 0), 0.1, kTiny);
  EXPECT_NEAR(learning_rate(config, 1), 0.2, kTiny);
  EXPECT_NEAR(learning_rate(config, 4), 0.5, kTiny);
  EXPECT_NEAR(learning_rate(config, 6), 0.4, kTiny);
  EXPECT_NEAR(learning_rate(config, 12), 0.1, kTiny);
  EXPECT_NEAR(learning_rate(config, 16), 0.1 / (1 + 0.5 * 2), kTiny);
  config.one_cycle.decay_rate = 0;
  EXPECT_NEAR(learning_rate(config, 16), 0.1, kTiny);
  config.one_cycle.second_steps = 0;  // as the first half
  EXPECT_NEAR(learning_rate(config, 6), 0.3, kTiny);
  EXPECT_NEAR(learning_rate(config, 8), 0.1, kTiny);
}

TEST(Schedule, LrRangeTest) {
  ScheduleConfig config{.type = ScheduleType::lr_range_test};
  config.range_test = {.min_lr = 1e-4, .step_size = 5, .step_rate = 2, .staircase = false};
  EXPECT_EQ(learning_rate(config, 0), 1e-4);
  EXPECT_NEAR(learning_rate(config, 3), 1e-4 * (1 + 2 * 0.6), kTiny);
  EXPECT_NEAR(learning_rate(config, 10), 5e-4, kTiny);
  config.range_test.staircase = true;
  EXPECT_EQ(learning_rate(config, 4), 1e-4);
  EXPECT_NEAR(learning_rate(config, 9), 3e-4, kTiny);
}

TEST(Schedule, TotalStepsMustBeKnown) {
  for (const ScheduleType type : {ScheduleType::linear, ScheduleType::cosine, ScheduleType::wsd,
                                  ScheduleType::warmup_decay_lr, ScheduleType::warmup_cosine_lr}) {
    EXPECT_THROW(learning_rate({.type = type}, 0), Error);
  }
}

TEST(Schedule, NeverNegativeNeverAboveTheHighestRate) {
  for (int type = 0; type < 7; ++type) {
    for (const int64_t warmup : {0, 1, 5, 40}) {
      for (const int64_t total : {1, 2, 6, 30}) {
        const ScheduleConfig config{.type = static_cast<ScheduleType>(type),
                                    .lr = 0.01,
                                    .total_steps = total,
                                    .warmup_steps = warmup,
                                    .warmup_max_lr = 0.01};
        for (int64_t k = 0; k < 60; ++k) {
          const double lr = learning_rate(config, k);
          ASSERT_TRUE(lr >= 0 && lr <= 0.01 + kTiny)
              << type << ' ' << warmup << ' ' << total << ' ' << k << ' ' << lr;
        }
      }
    }
  }
}

}  // namespace
}  // namespace zeno::config
