#include "zeno/train/interrupt.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace zeno::train {
namespace {

using namespace std::chrono_literals;

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

// How a process ends that gets `first`, and `second` that much later.
int end_of(int first, int second, std::chrono::milliseconds later, int64_t save_deadline_s = 0) {
  const pid_t child = fork();
  if (child == 0) {
    const Interrupt interrupt(save_deadline_s);
    raise(first);
    std::this_thread::sleep_for(later);
    raise(second);
    _exit(Interrupt::requested() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

TEST(Interrupt, SignalsWithinASecondAreOneWish) {
  EXPECT_EQ(end_of(SIGTERM, SIGTERM, 11ms), 0);  // Slurm at a time limit
  EXPECT_EQ(end_of(SIGINT, SIGINT, 0ms), 0);     // a terminal and its launcher
  EXPECT_EQ(end_of(SIGHUP, SIGTERM, 0ms), 0);    // a terminal that goes, and its shell
}

TEST(Interrupt, ALaterOneEndsTheProcess) { EXPECT_EQ(end_of(SIGINT, SIGINT, kSameWish + 100ms), SIGINT); }

TEST(Interrupt, WithADeadlineSavingHasThatTimeWhateverComes) {
  for (const int first : {SIGINT, SIGTERM, SIGHUP})
    EXPECT_EQ(end_of(first, SIGTERM, kSameWish + 100ms, 30), 0);
  // The early wish starts no clock; what follows does.
  EXPECT_EQ(end_of(SIGUSR1, SIGTERM, kSameWish + 100ms, 30), 0);
}

// Slurm's --signal=USR1@120 and then its time limit: KillWait is for saving.
TEST(Interrupt, AnEarlyWishIsNotTheFirstOfTwo) {
  EXPECT_EQ(end_of(SIGUSR1, SIGTERM, kSameWish + 100ms), 0);
  EXPECT_EQ(end_of(SIGUSR1, SIGUSR1, kSameWish + 100ms), 0);
  EXPECT_EQ(end_of(SIGTERM, SIGUSR1, kSameWish + 100ms), 0);
}

// mpirun may pass SIGUSR1 on while MPI shuts down: everything is saved by then.
TEST(Interrupt, ARequestAfterTheRunDoesNotEndTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int signal : {SIGUSR1, SIGUSR2}) std::signal(signal, SIG_DFL);
    { const Interrupt interrupt; }
    for (const int signal : {SIGUSR1, SIGUSR2}) raise(signal);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
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
