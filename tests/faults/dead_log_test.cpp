// What a run says goes nowhere: its log is on a disk that has stopped answering, or its reader has gone.
// Neither holds a run up, nor its end.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "tests/faults/stalling.h"
#include "tests/support/cli_runs.h"
#include "tests/support/job.h"
#include "tests/support/mpirun.h"
#include "zeno/train/interrupt.h"

namespace zeno::test {
namespace {

using namespace std::chrono_literals;

class DeadLog : public CliRuns {
 protected:
  std::string train(const std::string& more) const {
    return kZeno + " train --model " + path("model") + " --data generated --device cpu --seq-len 32 " +
           plain_flags(more) + more;
  }
  // Once it has a few steps behind it.
  void await_steps(Job& job, const std::filesystem::path& metrics) const {
    const auto steps = [&] {
      const std::string text = text_of(metrics);
      return std::ranges::count(text, '\n');
    };
    for (int tries = 0; tries < 6000 && steps() < 5 && !job.ended(); ++tries)
      std::this_thread::sleep_for(5ms);
  }
};

// Ctrl-C reaches `tee` as well, and a terminal that goes takes its reader along.
TEST_F(DeadLog, AReaderThatHasGoneCostsNothing) {
  for (const std::string more : {"", " --max-restarts 1 --save-every 20"}) {
    std::filesystem::remove_all(path("out"));
    const std::string run = train("--steps 60 --log " + path("log") + " --out " + path("out") + more);
    const CommandResult result =
        run_command("( ( " + run + " 2>&1; echo $? > " + path("code") + " ) | true ); cat " + path("code"));
    EXPECT_EQ(result.output, "0\n") << more;
    EXPECT_TRUE(std::filesystem::exists(path("out/model.safetensors"))) << more;
  }
}

TEST_F(DeadLog, AFullDiskUnderItCostsNothing) {
  const CommandResult result = run_command("( " + train("--steps 3 --out " + path("out")) + " 2>/dev/full )");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_TRUE(std::filesystem::exists(path("out/model.safetensors")));
}

class LogOnADeadDisk : public DeadLog {
 protected:
  void SetUp() override {
    if (!StallingDisk::available()) GTEST_SKIP() << "mounting a FUSE file system takes root and /dev/fuse";
    DeadLog::SetUp();
    disk_.emplace();
    std::filesystem::create_directories(disk_->path() / "out");
  }
  std::string on_disk(const std::string& name) const { return (disk_->path() / name).string(); }
  // All that is written to the disk hangs from the fifth step on.
  void stop_after_steps(Job& job) const {
    await_steps(job, disk_->files() / "out/metrics.jsonl");
    disk_->stop();
  }

  std::optional<StallingDisk> disk_;
};

TEST_F(LogOnADeadDisk, DoesNotHoldUpASupervisor) {
  Job job(train("--steps 1000000 --ranks 2 --save-every 1000000 --disk-deadline 1 --max-restarts 2 --out " +
                on_disk("out")),
          on_disk("out/said"));
  stop_after_steps(job);
  EXPECT_EQ(job.wait(60s), 5);
}

// The time for saving is over whatever the ranks hang in: as threads, or as the main threads of processes.
TEST_F(LogOnADeadDisk, DoesNotHoldUpTheEndOfASaveDeadline) {
  Job job(train("--steps 1000000 --ranks 2 --save-deadline 1 --out " + on_disk("out")), on_disk("out/said"));
  stop_after_steps(job);
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(60s), train::kSaveDeadlineExit);
}

TEST_F(LogOnADeadDisk, DoesNotHoldUpTheEndOfASaveDeadlineOfAProcess) {
  Job job(mpirun(1) + train("--steps 1000000 --save-deadline 1 --out " + on_disk("out")), path("said"));
  stop_after_steps(job);
  for (const pid_t rank : job.children()) kill(rank, SIGTERM);
  EXPECT_EQ(job.wait(60s), train::kSaveDeadlineExit) << text_of(path("said"));
  EXPECT_NE(text_of(path("said")).find("--save-deadline: "), std::string::npos) << text_of(path("said"));
}

// An earlier run's proof is none of this one's, however early it fails.
TEST_F(DeadLog, ARefusedRunLeavesNoProofOfAnother) {
  for (const std::string more : {"", " --max-restarts 1 --save-every 2"}) {
    std::ofstream(path("done")) << "an earlier run's";
    const CommandResult result = run_command(train("--steps 3 --resume " + path("nowhere") + " --done-file " +
                                                   path("done") + " --out " + path("out") + more));
    EXPECT_NE(result.exit_code, 0) << result.output;
    EXPECT_FALSE(std::filesystem::exists(path("done"))) << result.output;
  }
}

}  // namespace
}  // namespace zeno::test
