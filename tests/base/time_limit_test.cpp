#include "zeno/base/time_limit.h"

#include <gtest/gtest.h>

#include <future>

namespace zeno::test {
namespace {

using namespace std::chrono_literals;

TEST(TimeLimit, SaysWhenWorkTakesTooLong) {
  std::promise<void> over;
  const TimeLimit limit(1ms, [&] { over.set_value(); });
  EXPECT_EQ(over.get_future().wait_for(60s), std::future_status::ready);
}

TEST(TimeLimit, IsQuietWhenWorkEndsInTime) {
  bool called = false;
  {
    const TimeLimit limit(1h, [&] { called = true; });
  }
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace zeno::test
