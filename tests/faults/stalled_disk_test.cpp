// Runs whose disk stops answering for good: each ends in time, with an exit code that says so and the file
// and operation by name, however its ranks were started and whichever of its files it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <future>
#include <optional>

#include "tests/faults/stalling.h"
#include "tests/support/cli_runs.h"
#include "tests/support/job.h"
#include "tests/support/mpirun.h"
#include "tests/support/text.h"

namespace zeno::test {
namespace {

using namespace std::chrono_literals;

class LostRun : public CliRuns {
 protected:
  std::string train(const std::string& more) const {
    return kZeno + " train --model " + path("model") + " --data generated --device cpu --seq-len 32" +
           (has(more, "--steps") ? "" : " --steps 1000000") + plain_flags(more) + more;
  }
};

class StalledDisk : public LostRun {
 protected:
  void SetUp() override {
    if (!StallingDisk::available()) GTEST_SKIP() << "cannot mount a FUSE file system here";
    LostRun::SetUp();
    disk_.emplace();
  }
  std::string on_disk(const std::string& name) const { return (disk_->path() / name).string(); }
  std::string said() const { return text_of(path("said")); }

  // Until `log`, which must not be on the disk, has a few lines.
  static void wait_for_steps(Job& job, const std::string& log) {
    const auto steps = [&] {
      const std::string text = text_of(log);
      return std::ranges::count(text, '\n');
    };
    for (int tries = 0; tries < 6000 && steps() < 5 && !job.ended(); ++tries)
      std::this_thread::sleep_for(5ms);
  }
  void stop_after_steps(Job& job, const std::string& log,
                        void (StallingDisk::*stop)() const = &StallingDisk::stop) const {
    wait_for_steps(job, log);
    ((*disk_).*stop)();
  }
  void expect_named(const std::string& folder) const { expect_named(folder, said()); }
  void expect_named(const std::string& folder, const std::string& text) const {
    const size_t error = text.find("error: [disk] ");
    ASSERT_NE(error, std::string::npos) << text;
    const std::string line = text.substr(error, text.find('\n', error) - error);
    EXPECT_TRUE(has(line, on_disk(folder)) && has(line, ": no response for ")) << text;
  }

  std::optional<StallingDisk> disk_;
};

// All at once: they mostly wait.
TEST_F(StalledDisk, EndsRunsByName) {
  struct Launch {
    const char* name;
    std::string launcher, flags;
  };
  const Launch starts[] = {{"threads", "", "--ranks 4 --disk-deadline 1"},
                           // The others notice first that rank 0 does not come.
                           {"threads-with-a-deadline", "", "--ranks 4 --deadline 2"},
                           {"processes", mpirun(2), "--disk-deadline 1"},
                           {"processes-with-a-deadline", mpirun(2), "--deadline 2"},
                           {"supervised", "", "--ranks 2 --disk-deadline 1 --max-restarts 2"}};
  std::deque<Job> jobs;
  for (const Launch& start : starts)
    jobs.emplace_back(
        start.launcher + train(" --save-every 1000000 --out " + on_disk(start.name) + " " + start.flags),
        path(start.name));
  for (size_t i = 0; i < jobs.size(); ++i)
    wait_for_steps(jobs[i], (disk_->files() / starts[i].name / "metrics.jsonl").string());
  disk_->stop();
  for (size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE(starts[i].name);
    const int exit_code = jobs[i].wait(60s);
    const std::string text = text_of(path(starts[i].name));
    // Of processes, one that only waits for the other may be gone first.
    const bool peer_first = exit_code == 6 && !starts[i].launcher.empty();
    EXPECT_TRUE(exit_code == 5 || peer_first) << exit_code << "\n" << text;
    expect_named(starts[i].name, text);
  }
}

// Only the lock of --out is left to be released.
TEST_F(StalledDisk, AFinishedRunDoesNotWaitForItsLock) {
  Job job(mpirun(2) + train(" --steps 5 --disk-deadline 60 --out " + on_disk("out")), path("said"));
  while (!has(said(), "weights_hash") && !job.ended()) std::this_thread::sleep_for(1ms);
  disk_->stop();
  EXPECT_EQ(job.wait(20s), 0) << said();
}

// Whoever waits for a run waits for its files to be closed; here that never ends. The pipe that it writes to
// ends, too.
TEST_F(StalledDisk, FilesThatCannotBeClosedDoNotHoldUpTheEnd) {
  for (const std::string& start : {std::string(), mpirun(2)}) {
    auto end = std::async([&] {
      return run_command(start + train(" --save-every 1000000 --disk-deadline 1 --out " + on_disk("out")));
    });
    const auto trains = [&] { return has(text_of(disk_->files() / "out/metrics.jsonl"), "\"step\":5,"); };
    for (int tries = 0; tries < 12000 && !trains(); ++tries) std::this_thread::sleep_for(5ms);
    disk_->stop();
    const bool in_time = end.wait_for(40s) == std::future_status::ready;
    disk_->go_on();
    const CommandResult result = end.get();
    EXPECT_TRUE(in_time) << start << result.output;
    EXPECT_TRUE(result.exit_code == 5 || (result.exit_code == 6 && !start.empty())) << result.output;
    expect_named("out", result.output);
    disk_.emplace();
  }
}

// Written by a thread of its own, while training goes on.
TEST_F(StalledDisk, ACheckpointThatHangsEndsTheRunByName) {
  Job job(
      train(" --ranks 2 --save-every 3 --disk-deadline 1 --log " + path("log") + " --out " + on_disk("out")),
      path("said"));
  stop_after_steps(job, path("log"));
  EXPECT_EQ(job.wait(60s), 5) << said();
  expect_named("out");
}

// The system keeps a process whose transfers it cannot take back; the fault is told all the same.
TEST_F(StalledDisk, StatesOnItEndTheRunByName) {
  std::filesystem::create_directories(disk_->path() / "nvme");
  Job job(train(" --ranks 2 --stage 2 --offload-optimizer nvme --disk-deadline 1 --nvme-path " +
                on_disk("nvme") + " --out " + path("out")),
          path("said"));
  stop_after_steps(job, path("out/metrics.jsonl"));
  for (int tries = 0; tries < 6000 && !has(said(), "error: "); ++tries) std::this_thread::sleep_for(5ms);
  expect_named("nvme");
  disk_->go_on();
  EXPECT_EQ(job.wait(60s), 5) << said();
}

// A thread that the system does not let go keeps its process: the supervisor leaves both behind.
TEST_F(StalledDisk, ARunThatCannotBeKilledDoesNotHoldUpItsSupervisor) {
  Job job(train(" --ranks 2 --disk-deadline 1 --max-restarts 2 --save-every 1000000 --out " + on_disk("out")),
          path("said"));
  stop_after_steps(job, (disk_->files() / "out/metrics.jsonl").string(), &StallingDisk::stop_hard);
  EXPECT_EQ(job.wait(60s), 5) << said();
  EXPECT_TRUE(has(said(), "the kernel still holds it")) << said();
}

TEST_F(StalledDisk, AShortStallCostsNothing) {
  const std::string flags = " --ranks 2 --steps 200 --save-every 20 --disk-deadline 30";
  expect_ok(train_on_cpu("whole", "--seq-len 32" + flags));
  Job job(train(flags + " --out " + on_disk("out")), path("said"));
  for (int turn = 0; turn < 3 && !job.ended(); ++turn) {
    std::this_thread::sleep_for(300ms);
    disk_->stop();
    std::this_thread::sleep_for(500ms);
    disk_->go_on();
  }
  EXPECT_EQ(job.wait(60s), 0) << said();
  std::filesystem::copy(disk_->files() / "out", path("out"), std::filesystem::copy_options::recursive);
  EXPECT_EQ(outcome("out"), outcome("whole"));
}

// The log is on it, too: nobody may wait for a last word.
TEST_F(StalledDisk, ALogThatHangsDoesNotHoldUpTheEnd) {
  std::filesystem::create_directories(disk_->path() / "out");
  Job job(train(" --ranks 4 --save-every 1000000 --disk-deadline 1 --deadline 2 --out " + on_disk("out")),
          on_disk("out/said"));
  stop_after_steps(job, (disk_->files() / "out/metrics.jsonl").string());
  EXPECT_EQ(job.wait(60s), 5);
}

// Launchers have been seen to end with 0 after their ranks died. What an earlier run, or an evaluation of
// this one, has left in --out proves nothing.
TEST_F(LostRun, NoResultIsNoSuccess) {
  const std::string lost = " --out " + path("out") + " --launcher \"sh -c true\" --save-every 2 ";
  for (const bool former : {false, true}) {
    if (former) expect_ok(train(" --steps 3 --out " + path("out")));
    const CommandResult result = run_command(train(" --steps 3 --max-restarts 5" + lost));
    EXPECT_EQ(result.exit_code, 6) << result.output;
    EXPECT_TRUE(has(result.output, "sees no complete result in --out")) << result.output;
  }
}

// For scripts of one's own around a launcher.
TEST_F(LostRun, TheDoneFileIsThereWhenEverythingIsSaved) {
  const std::string done = " --done-file " + path("done") + " --out " + path("out");
  std::ofstream(path("done")) << "an earlier run's";
  EXPECT_NE(run_command(train(" --steps 3 --resume " + path("nowhere") + done)).exit_code, 0);
  expect_ok(train(" --steps 3" + done));
  EXPECT_TRUE(std::filesystem::exists(path("done")));
  std::filesystem::remove(path("done"));
  expect_ok(train(" --steps 3 --launcher env --save-every 2 --resume auto" + done));
  EXPECT_TRUE(std::filesystem::exists(path("done")));
  EXPECT_EQ(run_command("ls -A " + path("out") + " | grep '^[.]'").output, "");
}

}  // namespace
}  // namespace zeno::test
