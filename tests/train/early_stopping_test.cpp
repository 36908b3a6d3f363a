#include "zeno/train/early_stopping.h"

#include <gtest/gtest.h>

#include <cmath>

#include "zeno/train/evaluation.h"

namespace zeno::train {
namespace {

TEST(EarlyStopping, KeepsTheLowestLoss) {
  EarlyStopping stopping({});
  EXPECT_TRUE(stopping.add({1, 2.0, 0.1}));
  EXPECT_FALSE(stopping.add({2, 2.0, 0.9}));  // equal is not better
  EXPECT_FALSE(stopping.add({3, std::nan(""), 1}));
  EXPECT_TRUE(stopping.add({4, 1.9, 0.0}));
  EXPECT_FALSE(stopping.add({5, INFINITY, 0}));
  EXPECT_EQ(stopping.best()->step, 4);
  EXPECT_FALSE(stopping.give_up());  // never, unless asked to
}

TEST(EarlyStopping, OrTheHighestAccuracy) {
  EarlyStopping stopping({.best_metric = config::BestMetric::accuracy});
  EXPECT_TRUE(stopping.add({1, 2.0, 0.1}));
  EXPECT_FALSE(stopping.add({2, 1.0, 0.1}));
  EXPECT_TRUE(stopping.add({3, 3.0, 0.2}));
  EXPECT_EQ(stopping.best()->step, 3);
}

TEST(EarlyStopping, GivesUpAfterItsPatience) {
  EarlyStopping stopping({.early_stopping = 2});
  for (const double loss : {3.0, 2.0, 2.5}) stopping.add({0, loss, 0});
  EXPECT_FALSE(stopping.give_up());
  stopping.add({0, 1.9, 0});  // starts anew
  stopping.add({0, 1.95, 0});
  EXPECT_FALSE(stopping.give_up());
  stopping.add({0, std::nan(""), 0});
  EXPECT_TRUE(stopping.give_up());
}

// Small steps count when they add up: the delta is measured from the last improvement.
TEST(EarlyStopping, DeltaIsMeasuredFromTheLastImprovement) {
  EarlyStopping stopping({.early_stopping = 2, .early_stopping_delta = 0.1});
  stopping.add({1, 1.0, 0});
  EXPECT_TRUE(stopping.add({2, 0.95, 0}));  // the best, but no improvement worth waiting for
  EXPECT_FALSE(stopping.give_up());
  stopping.add({3, 0.89, 0});
  EXPECT_FALSE(stopping.give_up());
  stopping.add({4, 0.85, 0});
  stopping.add({5, 0.80, 0});
  EXPECT_TRUE(stopping.give_up());
  EXPECT_EQ(stopping.best()->step, 5);
}

TEST(EvaluationDue, EveryEpochOrEverySoManyStepsAndAtTheEnd) {
  const auto steps = [](const config::EvalConfig& config) {
    std::vector<int64_t> due;
    for (int64_t step = 0; step <= 10; ++step) {
      if (evaluation_due(config, step, 10, 4)) due.push_back(step);
    }
    return due;
  };
  EXPECT_EQ(steps({}), (std::vector<int64_t>{4, 8, 10}));
  EXPECT_EQ(steps({.every = 3, .on_start = true}), (std::vector<int64_t>{0, 3, 6, 9, 10}));
  EXPECT_EQ(steps({.every = 100}), (std::vector<int64_t>{10}));
}

}  // namespace
}  // namespace zeno::train
