#include "zeno/zero/lane_progress.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace zeno::zero {
namespace {

// Each lane passes a position only after the lane before it, and sees what that one did there.
TEST(LaneProgress, NobodyPassesThoseHeWaitsFor) {
  constexpr int64_t kEnd = 2000;
  LaneProgress progress;
  std::vector<std::vector<int64_t>> done(kLanes, std::vector<int64_t>(kEnd + 1));  // no atomics
  {
    std::vector<std::jthread> threads;
    for (int lane = kLanes - 1; lane >= 0; --lane) {
      threads.emplace_back([&, lane] {
        for (int64_t at = 1; at <= kEnd; ++at) {
          const bool passed = lane == 0 || progress.await(Lane(lane - 1), at);
          ASSERT_TRUE(passed);
          done[size_t(lane)][size_t(at)] = lane == 0 ? at : done[size_t(lane - 1)][size_t(at)] + 1;
          progress.reach(Lane(lane), at);
        }
      });
    }
  }
  for (int64_t at = 1; at <= kEnd; ++at) EXPECT_EQ(done[kLanes - 1][size_t(at)], at + kLanes - 1);
}

TEST(LaneProgress, GivingUpWakesThoseWhoWaitAndIsTheLastWord) {
  LaneProgress progress;
  progress.reach(Lane::fetch, 5);
  bool store = true, update = true;
  {
    std::jthread one([&] { store = progress.await(Lane::store, 1); });
    std::jthread two([&] { update = progress.await(Lane::update, 1); });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    progress.give_up(std::make_exception_ptr(std::runtime_error("the link is gone")));
  }
  EXPECT_FALSE(store);
  EXPECT_FALSE(update);
  progress.reach(Lane::store, 1);
  EXPECT_FALSE(progress.await(Lane::store, 1));
  EXPECT_FALSE(progress.await(Lane::fetch, 5));
  progress.give_up(std::make_exception_ptr(std::runtime_error("what follows from it")));
  try {
    progress.rethrow();
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the link is gone");
  }
}

TEST(LaneProgress, AnEndWithoutAFailureBlamesNobody) {
  LaneProgress progress;
  progress.rethrow();
  progress.give_up(nullptr);
  EXPECT_FALSE(progress.await(Lane::compute, 1));
  progress.rethrow();
}

}  // namespace
}  // namespace zeno::zero
