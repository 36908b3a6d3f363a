#include "zeno/base/within.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>

#include "zeno/base/error.h"

namespace zeno {
namespace {

using namespace std::chrono_literals;

TEST(FinishesWithin, SaysWhetherTheWorkIsDone) {
  const auto done = std::make_shared<bool>(false);
  EXPECT_TRUE(finishes_within(60s, [done] { *done = true; }));
  EXPECT_TRUE(*done);
}

TEST(FinishesWithin, LeavesBehindWhatHangs) {
  const auto go_on = std::make_shared<std::promise<void>>();
  const auto ended = std::make_shared<std::promise<void>>();
  EXPECT_FALSE(finishes_within(1ms, [go_on, ended] {
    go_on->get_future().wait();
    ended->set_value();
  }));
  go_on->set_value();
  ended->get_future().wait();
}

TEST(FinishesWithin, GivesUpWhenAskedTo) {
  const auto go_on = std::make_shared<std::promise<void>>();
  int asked = 0;
  const auto give_up = [&] { return ++asked == 2; };
  EXPECT_FALSE(finishes_within(
      1h, [go_on] { go_on->get_future().wait(); }, give_up));
  EXPECT_EQ(asked, 2);
  go_on->set_value();
}

TEST(FinishesWithin, PassesAnErrorOn) {
  EXPECT_THROW(finishes_within(60s, [] { fail(ErrorKind::io, "[disk] broken"); }), Error);
}

}  // namespace
}  // namespace zeno
