#include "zeno/train/interrupt.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace zeno::train {
namespace {

TEST(Interrupt, TheFirstSignalIsAWish) {
  for (int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    const Interrupt interrupt;
    EXPECT_FALSE(Interrupt::requested());
    raise(signal);
    EXPECT_TRUE(Interrupt::requested());
  }
}

TEST(Interrupt, AWishForACheckpointIsTakenOnce) {
  const Interrupt interrupt;
  EXPECT_FALSE(Interrupt::take_save_request());
  for (int turn = 0; turn < 2; ++turn) {
    raise(SIGUSR2);
    raise(SIGUSR2);
    EXPECT_TRUE(Interrupt::take_save_request());
    EXPECT_FALSE(Interrupt::take_save_request());
  }
  EXPECT_FALSE(Interrupt::requested());
}

TEST(Interrupt, TheSecondEndsTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    const Interrupt interrupt;
    raise(SIGINT);
    raise(SIGINT);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

TEST(Interrupt, PutsTheFormerHandlersBackAndLeavesIgnoredSignalsAlone) {
  static volatile sig_atomic_t seen = 0;
  const auto before = std::signal(SIGTERM, [](int) { seen = seen + 1; });
  const auto ignored = std::signal(SIGUSR1, SIG_IGN);
  {
    const Interrupt interrupt;
    raise(SIGUSR1);
    EXPECT_FALSE(Interrupt::requested());
    raise(SIGTERM);
    EXPECT_TRUE(Interrupt::requested());
    EXPECT_EQ(seen, 0);
  }
  raise(SIGTERM);
  EXPECT_EQ(seen, 1);
  std::signal(SIGTERM, before);
  std::signal(SIGUSR1, ignored);
}

}  // namespace
}  // namespace zeno::train
