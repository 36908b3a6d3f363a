// Jobs that start, end and resume at once in one output folder: each owns it from the first look to the last
// write, or says that it could not have it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>

#include "tests/support/cli_runs.h"
#include "tests/support/job.h"

namespace zeno::test {
namespace {

using namespace std::chrono_literals;

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

class OneOwner : public CliRuns {
 protected:
  std::string train(const std::string& more) const { return train_on_cpu("out", "--seq-len 32 " + more); }
  std::string said(int job) const { return text_of(path("said" + std::to_string(job))); }
  Job& start(const std::string& command) {
    return jobs_.emplace_back(command, path("said" + std::to_string(jobs_.size())));
  }

  std::deque<Job> jobs_;
};

TEST_F(OneOwner, OfJobsThatStartAtOnceOneWritesTheResult) {
  for (int i = 0; i < 3; ++i) start(train("--steps 300 --seed " + std::to_string(i)));
  std::vector<int> winners;
  for (int i = 0; i < 3; ++i) {
    const int exit_code = jobs_[size_t(i)].wait(60s);
    if (exit_code == 0) winners.push_back(i);
    if (exit_code != 0) {
      EXPECT_EQ(exit_code, 2) << said(i);
      EXPECT_TRUE(has(said(i), "another run")) << said(i);
    }
  }
  ASSERT_EQ(winners.size(), 1u);
  // Nobody has written over what it left.
  const std::vector<std::string> lines = outcome("out");
  EXPECT_TRUE(has(said(winners[0]), "weights_hash " + lines.back())) << said(winners[0]);
}

// The second asks what there is to resume from while the first removes old checkpoints and writes the last.
TEST_F(OneOwner, AResumeThatOverlapsTheEndOfARunFindsItWhole) {
  for (int turn = 0; turn < (ZENO_FULL_TESTS ? 20 : 3); ++turn) {
    std::filesystem::remove_all(path("out"));
    jobs_.clear();
    Job& first = start(train("--steps 200 --save-every 4 --keep-last 1 --resume auto"));
    std::this_thread::sleep_for(std::chrono::milliseconds(150 + 40 * turn));
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
