// Jobs that start, end and resume at once in one output folder: each owns it from the first look to the last
// write, or says that it could not have it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>

#include "tests/support/cli_runs.h"
#include "tests/support/job.h"
#include "tests/support/mpirun.h"
#include "tests/support/text.h"

namespace zeno::test {
namespace {

using namespace std::chrono_literals;

class OneOwner : public CliRuns {
 protected:
  std::string train(const std::string& more) const { return train_on_cpu("out", "--seq-len 32 " + more); }
  std::string said(int job) const { return text_of(path("said" + std::to_string(job))); }
  Job& start(const std::string& command) {
    return jobs_.emplace_back(command, path("said" + std::to_string(jobs_.size())));
  }
  // Until the run that owns the folder has written so many steps.
  void wait_for_steps(size_t steps) const {
    wait_until([&] { return outcome("out").size() >= steps; });
  }
  template <class Condition>
  static void wait_until(const Condition& condition) {
    const auto give_up = std::chrono::steady_clock::now() + 60s;
    while (!condition() && std::chrono::steady_clock::now() < give_up) std::this_thread::sleep_for(2ms);
    EXPECT_TRUE(condition());
  }
  // Has it opened the lock? If another run holds that, it waits.
  bool waits(const Job& job) const {
    std::error_code gone;
    for (const auto& file :
         std::filesystem::directory_iterator("/proc/" + std::to_string(job.pid()) + "/fd", gone)) {
      if (std::filesystem::read_symlink(file, gone) == path("out/.zeno-lock")) return true;
    }
    return false;
  }
  void expect_that_it_wrote_the_result(int job) const {
    EXPECT_TRUE(has(said(job), "weights_hash " + outcome("out").back())) << said(job);
  }

  std::deque<Job> jobs_;
};

TEST_F(OneOwner, OfJobsThatStartAtOnceOneWritesTheResult) {
  for (int i = 0; i < 3; ++i) start(train("--steps 1000000 --seed " + std::to_string(i)));
  wait_for_steps(3);
  int owner = 0;
  for (int i = 0; i < 3; ++i) {
    if (has(said(i), "step 1/")) owner = i;
  }
  // The others wait for its end, or have ended.
  for (Job& job : jobs_) wait_until([&] { return job.ended() || waits(job); });
  std::this_thread::sleep_for(100ms);  // between opening and trying the lock
  kill(jobs_[size_t(owner)].pid(), SIGTERM);
  EXPECT_EQ(jobs_[size_t(owner)].wait(60s), 0) << said(owner);
  for (int i = 0; i < 3; ++i) {
    if (i == owner) continue;
    EXPECT_EQ(jobs_[size_t(i)].wait(60s), 2) << said(i);
    EXPECT_TRUE(has(said(i), "another run is writing there") || has(said(i), "another run has just ended"))
        << said(i);
  }
  expect_that_it_wrote_the_result(owner);
}

TEST_F(OneOwner, OfJobsOfProcessesOneWritesTheResult) {
  for (int i = 0; i < 2; ++i) {
    start(mpirun(2) + train("--stage 2 --steps 1000000 --seed " + std::to_string(i)));
    if (i == 0) wait_for_steps(3);
  }
  EXPECT_EQ(jobs_[1].wait(60s), 2) << said(1);
  EXPECT_TRUE(has(said(1), "another run is writing there")) << said(1);
  kill(jobs_[0].pid(), SIGUSR1);
  EXPECT_EQ(jobs_[0].wait(60s), 0) << said(0);
  expect_that_it_wrote_the_result(0);
}

// The second asks what there is to resume from while the first removes old checkpoints and writes the last.
TEST_F(OneOwner, AResumeThatOverlapsTheEndOfARunFindsItWhole) {
  for (int turn = 0; turn < (ZENO_FULL_TESTS ? 20 : 3); ++turn) {
    std::filesystem::remove_all(path("out"));
    jobs_.clear();
    Job& first = start(train("--steps 200 --save-every 4 --keep-last 1 --resume auto"));
    wait_for_steps(size_t(40 + 140 * turn % 160));
    Job& second = start(train("--steps 200 --save-every 4 --keep-last 1 --resume auto"));
    EXPECT_EQ(first.wait(60s), 0) << said(0);
    const int exit_code = second.wait(60s);
    EXPECT_TRUE(exit_code == 0 || (exit_code == 2 && has(said(1), "another run is writing there")))
        << said(1);
    EXPECT_EQ(outcome("out").size(), 201u) << said(1);
  }
}

// A refused run leaves nothing, not even the folder that it locked.
TEST_F(OneOwner, ARefusedRunLeavesNoFolder) {
  EXPECT_EQ(run_command(train("--steps 2 --resume " + path("nowhere"))).exit_code, 3);
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

}  // namespace
}  // namespace zeno::test
