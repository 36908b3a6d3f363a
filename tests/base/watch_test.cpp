#include "zeno/base/watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

namespace zeno {
namespace {

using namespace std::chrono_literals;

TEST(Watch, LooksUntilItIsToldToEnd) {
  std::atomic<int> looks{0};
  std::promise<void> seen;
  const Watch watch([&] {
    if (++looks == 2) seen.set_value();
    return looks == 2;
  });
  ASSERT_EQ(seen.get_future().wait_for(60s), std::future_status::ready);
  EXPECT_EQ(looks, 2);
}

TEST(Watch, EndsWithItsOwner) {
  const auto begin = std::chrono::steady_clock::now();
  {
    const Watch watch([] { return false; });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
}

}  // namespace
}  // namespace zeno
