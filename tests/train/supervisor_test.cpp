#include "zeno/train/supervisor.h"
#include "tests/support/text.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "zeno/base/error.h"

namespace zeno::train {
namespace {

using namespace std::chrono_literals;

constexpr ChildEnd kKilled{SIGKILL, 137, 12300ms};
ChildEnd ended(ErrorKind kind) { return {0, exit_code(kind), 4000ms}; }
using test::has;

TEST(OnlyZombiesLeft, TellsALauncherThatForgotItsProcesses) {
  const pid_t launcher = fork();
  if (launcher == 0) {
    if (fork() == 0) {
      usleep(200'000);
      _exit(0);
    }
    pause();  // never looks
  }
  EXPECT_FALSE(only_zombies_left(launcher));
  bool seen = false;
  for (int i = 0; i < 500 && !seen; ++i) {
    usleep(20'000);
    seen = only_zombies_left(launcher);
  }
  EXPECT_TRUE(seen);
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
}

TEST(RestartPolicy, AGoodEndIsTheEnd) {
  RestartPolicy policy(3, {});
  const RestartPolicy::Verdict verdict = policy.after({0, 0, 1s}, 10);
  EXPECT_FALSE(verdict.restart);
  EXPECT_EQ(verdict.text, "");
}

// A launcher, or a script around it, that does not pass the exit code on.
TEST(RestartPolicy, AnEndBeforeEverythingIsSavedIsADeath) {
  RestartPolicy policy(3, {});
  const RestartPolicy::Verdict verdict = policy.after({0, 0, 1s, false}, 10);
  EXPECT_TRUE(verdict.restart);
  EXPECT_EQ(
      verdict.text,
      "[supervisor] the run ended with exit code 0 after 1.0 s, but this host sees no complete result in "
      "--out; restart 1 of 3 from the checkpoint of step 10");
}

TEST(RestartPolicy, DeathAndPeerFailureAreStartedAgainAndSaidSo) {
  RestartPolicy policy(3, {});
  RestartPolicy::Verdict verdict = policy.after(kKilled, {});
  EXPECT_TRUE(verdict.restart);
  EXPECT_EQ(verdict.text,
            "[supervisor] the run was killed by SIGKILL after 12.3 s; restart 1 of 3 from the beginning");
  verdict = policy.after(ended(ErrorKind::peer), 40);
  EXPECT_TRUE(verdict.restart);
  EXPECT_EQ(verdict.text,
            "[supervisor] the run ended with exit code 6 after 4.0 s; restart 2 of 3 from the checkpoint of "
            "step 40");
}

TEST(RestartPolicy, ErrorsThatWouldComeAgainAreNot) {
  for (const ErrorKind kind :
       {ErrorKind::usage, ErrorKind::data, ErrorKind::memory, ErrorKind::io, ErrorKind::internal}) {
    RestartPolicy policy(3, {});
    const RestartPolicy::Verdict verdict = policy.after(ended(kind), 10);
    EXPECT_FALSE(verdict.restart);
    EXPECT_TRUE(has(verdict.text, "not restarted")) << verdict.text;
  }
}

TEST(RestartPolicy, AtMostSoOften) {
  RestartPolicy policy(2, {});
  EXPECT_TRUE(policy.after(kKilled, 1).restart);
  EXPECT_TRUE(policy.after(kKilled, 2).restart);
  const RestartPolicy::Verdict verdict = policy.after(kKilled, 3);
  EXPECT_FALSE(verdict.restart);
  EXPECT_TRUE(has(verdict.text, "all 2 restarts are used up")) << verdict.text;
}

TEST(RestartPolicy, WithoutProgressItGivesUpEarly) {
  RestartPolicy policy(100, {});
  EXPECT_TRUE(policy.after(kKilled, {}).restart);
  EXPECT_TRUE(policy.after(kKilled, 5).restart) << "progress";
  EXPECT_TRUE(policy.after(kKilled, 5).restart);
  EXPECT_TRUE(policy.after(kKilled, 5).restart);
  const RestartPolicy::Verdict verdict = policy.after(kKilled, 5);
  EXPECT_FALSE(verdict.restart);
  EXPECT_TRUE(has(verdict.text,
                  "died 3 times in a row without reaching a checkpoint after the checkpoint "
                  "of step 5"))
      << verdict.text;
}

TEST(RestartPolicy, CheckpointsFromBeforeAreNoProgress) {
  RestartPolicy policy(100, 70);
  EXPECT_TRUE(policy.after(kKilled, 70).restart);
  EXPECT_TRUE(policy.after(kKilled, 70).restart);
  EXPECT_FALSE(policy.after(kKilled, 60).restart) << "the newest was damaged: an older one is none either";
}

TEST(RestartPolicy, NoneAllowed) {
  RestartPolicy policy(0, {});
  EXPECT_FALSE(policy.after(kKilled, 10).restart);
}

TEST(SplitWords, AsAShellWould) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(split_words(""), Words{});
  EXPECT_EQ(split_words("  mpirun -n  4 "), (Words{"mpirun", "-n", "4"}));
  EXPECT_EQ(split_words("a 'b c' d\"e f\"g ''"), (Words{"a", "b c", "de fg", ""}));
  EXPECT_THROW(split_words("mpirun 'open"), Error);
}

TEST(Supervisor, ALauncherThatIsNotThereIsAnError) {
  Supervisor supervisor(
      {.launcher = {"no-such-launcher"},
       .arguments = [](bool, const Supervisor::Output&) { return std::vector<std::string>{}; },
       .output = [] { return Supervisor::Output{}; }});
  try {
    supervisor.run();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_TRUE(has(error.what(), "cannot start no-such-launcher: No such file")) << error.what();
  }
}

TEST(Supervisor, TheExitCodeIsThatOfTheProcess) {
  Supervisor supervisor(
      {.launcher = {"/bin/sh", "-c", "exit 42", "sh"},
       .arguments = [](bool, const Supervisor::Output&) { return std::vector<std::string>{}; },
       .output = [] { return Supervisor::Output{}; }});
  EXPECT_EQ(supervisor.run(), 42);
}

// How a supervisor ends, in a process of its own, that runs `command` and looks at its output so.
int end_of_supervisor(const std::function<Supervisor::Output(int look)>& look,
                      const std::string& command = "true") {
  const pid_t child = fork();
  if (child == 0) {
    int looks = 0;
    Supervisor supervisor(
        {.launcher = {"/bin/sh", "-c", command},
         .arguments = [](bool, const Supervisor::Output&) { return std::vector<std::string>(); },
         .output = [&] { return look(looks++); },
         .disk_deadline = 20s});
    _exit(supervisor.run());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

constexpr Supervisor::Output kNothing{{}, false}, kDone{{}, true};

void ask_slowly() {
  kill(getpid(), SIGTERM);
  std::this_thread::sleep_for(300ms);
}

TEST(Supervisor, ASignalWhileItLooksAtADoneRunChangesNothing) {
  EXPECT_EQ(end_of_supervisor([](int look) {
              if (look == 0) return kNothing;
              ask_slowly();
              return kDone;
            }),
            0);
}

TEST(Supervisor, ASignalBeforeTheRunIsThereStartsNone) {
  EXPECT_EQ(end_of_supervisor([](int) {
              ask_slowly();
              return kDone;
            }),
            128 + SIGTERM);
}

TEST(Supervisor, ADiskThatFailsForAMomentIsAskedAgain) {
  EXPECT_EQ(end_of_supervisor([](int look) {
              if (look == 0) return kNothing;
              if (look == 1) fail(ErrorKind::io, "cannot list folder");
              return kDone;
            }),
            0);
}

// What a disk has failed is not restarted: nobody waits for that disk again.
TEST(Supervisor, AnEndByADiskTakesNoLookAtIt) {
  EXPECT_EQ(end_of_supervisor(
                [](int look) {
                  if (look > 0) _exit(99);
                  return kNothing;
                },
                "exit 5"),
            5);
}

TEST(Supervisor, AnEndWithoutAResultIsAFailure) {
  EXPECT_EQ(end_of_supervisor([](int) { return kNothing; }), exit_code(ErrorKind::peer));
}

}  // namespace
}  // namespace zeno::train
