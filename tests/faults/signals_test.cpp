// What terminals, Slurm and Kubernetes send to a run that has to end: it finishes its step, saves and ends
// with exit code 0, however its ranks were started.
#include <gtest/gtest.h>

#include <optional>

#include "tests/faults/interrupted_run.h"
#include "tests/faults/stalling.h"
#include "tests/support/cli_runs.h"
#include "tests/support/job.h"
#include "tests/support/mpirun.h"
#include "tests/support/text.h"
#include "zeno/train/interrupt.h"

namespace zeno::test {
namespace {

using namespace std::chrono_literals;

struct Start {
  const char* name;
  std::string launcher, flags;
};
std::ostream& operator<<(std::ostream& out, const Start& start) { return out << start.name; }

class Signals : public CliRuns, public testing::WithParamInterface<Start> {
 protected:
  // Returns when it trains.
  void start(const std::string& out, const std::string& more = "") {
    const Start& how = GetParam();
    const std::string flags = " --seq-len 32 --steps 1000000 --save-every 1000000 " + how.flags + more;
    job_.emplace(how.launcher + kZeno + " train --model " + path("model") +
                     " --data generated --device cpu --out " + out + plain_flags(flags) + flags,
                 path("said"));
    const auto trains = [&] { return has(text_of(out + "/metrics.jsonl"), "\"step\":3,"); };
    for (int tries = 0; tries < 12000 && !trains() && !job_->ended(); ++tries)
      std::this_thread::sleep_for(5ms);
    ASSERT_TRUE(trains()) << said();
  }
  // Slurm sends signals to each process of a step.
  void send(int signal) const {
    if (GetParam().launcher.empty()) {
      kill(job_->pid(), signal);
    } else {
      for (const pid_t rank : job_->children()) kill(rank, signal);
    }
  }
  void expect_saved(const std::filesystem::path& out) {
    ASSERT_EQ(job_->wait(60s), 0) << said();
    expect_interrupted_run_saved(said(), out);
  }
  std::string said() const { return text_of(path("said")); }

  std::optional<Job> job_;
};

TEST_P(Signals, OfSlurmAtATimeLimit) {
  ASSERT_NO_FATAL_FAILURE(start(path("out")));
  send(SIGTERM);
  std::this_thread::sleep_for(5ms);
  send(SIGCONT);
  std::this_thread::sleep_for(5ms);
  send(SIGTERM);
  expect_saved(path("out"));
}

INSTANTIATE_TEST_SUITE_P(Started, Signals,
                         testing::Values(Start{"Threads", "", "--ranks 2"},
                                         Start{"Supervised", "", "--ranks 2 --max-restarts 2"},
                                         Start{"Processes", mpirun(2), ""}),
                         [](const auto& test) { return test.param.name; });

// mpirun has ways of its own with these.
using SignalsWithoutMpi = Signals;

// And SIGKILL after a grace of 30 s.
TEST_P(SignalsWithoutMpi, OfKubernetes) {
  ASSERT_NO_FATAL_FAILURE(start(path("out")));
  send(SIGTERM);
  expect_saved(path("out"));
}

// While the clock of --save-deadline runs, saving has that time: here the disk is slow.
TEST_P(SignalsWithoutMpi, ThatComeWhileItSaves) {
  if (!StallingDisk::available()) GTEST_SKIP() << "cannot mount a FUSE file system here";
  const StallingDisk disk;
  ASSERT_NO_FATAL_FAILURE(start(disk.path() / "out", " --save-deadline 60"));
  disk.stop();
  send(SIGTERM);
  std::this_thread::sleep_for(train::kSameWish + 100ms);
  send(SIGTERM);
  std::this_thread::sleep_for(100ms);
  disk.go_on();
  expect_saved(disk.files() / "out");
  job_.reset();  // before the disk
}

TEST_P(SignalsWithoutMpi, OfATerminalToTheWholeGroup) {
  ASSERT_NO_FATAL_FAILURE(start(path("out")));
  kill(-job_->pid(), SIGINT);
  expect_saved(path("out"));
}

TEST_P(SignalsWithoutMpi, OfATerminalThatIsGone) {
  ASSERT_NO_FATAL_FAILURE(start(path("out")));
  kill(-job_->pid(), SIGHUP);
  expect_saved(path("out"));
}

INSTANTIATE_TEST_SUITE_P(Started, SignalsWithoutMpi,
                         testing::Values(Start{"Threads", "", "--ranks 2"},
                                         Start{"Supervised", "", "--ranks 2 --max-restarts 2"}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace zeno::test
