// Supervision with real processes: a run that is killed ends with the bits of one that was not, what cannot
// be helped is not tried again, signals arrive, nobody is left over, and a stall is written down.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/support/cli_runs.h"
#include "tests/support/job.h"
#include "tests/support/mpirun.h"
#include "tests/support/text.h"
#include "zeno/train/interrupt.h"

namespace zeno::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

int count_of(const std::string& text, std::string_view part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

template <class Ready>
bool wait_for(const Ready& ready, std::chrono::seconds patience = 60s) {
  for (const auto end = Clock::now() + patience; Clock::now() < end; std::this_thread::sleep_for(2ms)) {
    if (ready()) return true;
  }
  return ready();
}

// Processes that `pid` has started.
std::vector<pid_t> children_of(pid_t pid) {
  std::istringstream words(run_command("pgrep -P " + std::to_string(pid)).output);
  return {std::istream_iterator<pid_t>(words), {}};
}

// Gone, or nothing but a zombie that nobody has collected.
bool is_over(pid_t pid) {
  const std::string stat = text_of("/proc/" + std::to_string(pid) + "/stat");
  return stat.empty() || has(stat, ") Z ") || has(stat, ") X ");
}

// A command under way, its output in a file.
class Job {
 public:
  Job(const std::string& command, fs::path log) : log_(std::move(log)) {
    pid_ = fork();
    if (pid_ == 0) {
      const std::string line = "exec " + command + " > " + log_.string() + " 2>&1";
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
  }
  ~Job() {
    if (!ended_) kill(pid_, SIGKILL), wait();
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  pid_t pid() const { return pid_; }
  std::string log() const { return text_of(log_); }
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // The process of the `start`-th start of the run, as the supervisor tells it.
  pid_t run(int start) const {
    constexpr std::string_view kWords = "the run is process ";
    const auto said = [&] { return count_of(log(), kWords) >= start; };
    if (!wait_for(said, 30s)) return -1;
    const std::string text = log();
    size_t at = 0;
    for (int i = 0; i < start; ++i) at = text.find(kWords, at) + kWords.size();
    return std::stoi(text.substr(at));
  }

 private:
  fs::path log_;
  pid_t pid_ = -1;
  bool ended_ = false;
};

class Supervise : public CliRuns {
 protected:
  std::string train(const std::string& out, const std::string& more) const {
    return train_on_cpu(out, "--seq-len 32 --stage 3 --micro-batch 1 " + more);
  }
  std::string hash(const std::string& out) const {
    std::ifstream file(path(out) + "/metrics.jsonl");
    std::string last;
    for (std::string line; std::getline(file, line);) last = line;
    const auto parsed = nlohmann::json::parse(last, nullptr, false);
    return parsed.is_object() ? parsed.value("weights_hash", "none: " + last) : "no metrics";
  }
  // Is there a checkpoint of this step or a later one?
  bool saved(const std::string& out, int step) const {
    std::error_code not_there_yet;
    for (const auto& entry : fs::directory_iterator(path(out) + "/checkpoints", not_there_yet)) {
      const int found = std::stoi(entry.path().filename().string().substr(sizeof "step-" - 1));
      if (found >= step && fs::exists(entry.path() / "manifest.json")) return true;
    }
    return false;
  }
};

constexpr const char* kRun = "--steps 400 --save-every 40 --keep-last 0";

TEST_F(Supervise, AKilledRunEndsWithTheSameBits) {
  ASSERT_EQ(run_command(train("whole", "--ranks 2 --steps 400")).exit_code, 0);
  Job job(train("killed", std::string("--ranks 2 --max-restarts 3 ") + kRun), path("log"));
  for (int start = 1; start <= 2; ++start) {
    ASSERT_TRUE(wait_for([&] { return saved("killed", 40 * start); })) << job.log();
    kill(job.run(start), SIGKILL);
    ASSERT_GT(job.run(start + 1), 0) << job.log();
  }
  EXPECT_EQ(job.wait(), 0) << job.log();
  EXPECT_TRUE(has(job.log(), "the run was killed by SIGKILL after ")) << job.log();
  EXPECT_TRUE(has(job.log(), "restart 2 of 3 from the checkpoint of step ")) << job.log();
  EXPECT_EQ(hash("killed"), hash("whole"));
}

TEST_F(Supervise, AKilledRankOfALauncherRestartsTheJob) {
  ASSERT_EQ(run_command(train("whole", "--ranks 2 --steps 400")).exit_code, 0);
  Job job(train("killed", std::string("--max-restarts 2 --launcher '") + mpirun(2) + "' " + kRun),
          path("log"));
  ASSERT_TRUE(wait_for([&] { return saved("killed", 40); })) << job.log();
  const std::vector<pid_t> ranks = children_of(job.run(1));
  ASSERT_EQ(ranks.size(), 2u) << job.log();
  kill(ranks[1], SIGKILL);
  EXPECT_EQ(job.wait(), 0) << job.log();
  EXPECT_TRUE(has(job.log(), "restart 1 of 2 from the checkpoint of step ")) << job.log();
  EXPECT_EQ(hash("killed"), hash("whole"));
}

TEST_F(Supervise, WithoutProgressItStops) {
  const CommandResult result =
      run_command(train("out", "--max-restarts 9 --save-every 5 --launcher \"sh -c 'kill -9 \\$\\$'\""));
  EXPECT_EQ(result.exit_code, 137) << result.output;
  EXPECT_EQ(count_of(result.output, "the run is process"), 3) << result.output;
  EXPECT_TRUE(has(result.output, "died 3 times in a row without reaching a checkpoint")) << result.output;
}

TEST_F(Supervise, ErrorsThatWouldComeAgainAreNotTriedAgain) {
  const CommandResult bad =
      run_command(train("out", "--max-restarts 9 --save-every 5 --lora-rank 4 --stage 9"));
  EXPECT_EQ(bad.exit_code, 2) << bad.output;
  const CommandResult gone =
      run_command(kZeno + " train --model " + path("nowhere") + " --data generated --out " + path("out") +
                  " --max-restarts 9 --save-every 5");
  EXPECT_EQ(gone.exit_code, 3) << gone.output;
  EXPECT_EQ(count_of(gone.output, "the run is process"), 1) << gone.output;
  EXPECT_TRUE(has(gone.output, "not restarted")) << gone.output;
}

TEST_F(Supervise, WhatCannotBeSupervisedIsRefused) {
  const CommandResult unsaved = run_command(train("out", "--max-restarts 3"));
  EXPECT_EQ(unsaved.exit_code, 2);
  EXPECT_TRUE(has(unsaved.output, "give --save-every")) << unsaved.output;
  const CommandResult inside = run_command("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 " +
                                           train("out", "--max-restarts 3 --save-every 5"));
  EXPECT_EQ(inside.exit_code, 2);
  EXPECT_TRUE(has(inside.output, "--launcher \"mpirun -n 4\" --max-restarts 3")) << inside.output;
  ASSERT_EQ(run_command(train("old", "--steps 4 --save-every 2")).exit_code, 0);
  const CommandResult mixed = run_command(train("old", "--steps 4 --save-every 2 --max-restarts 1"));
  EXPECT_EQ(mixed.exit_code, 2);
  EXPECT_TRUE(has(mixed.output, "is from an earlier run")) << mixed.output;
  EXPECT_EQ(run_command(train("old", "--steps 6 --save-every 2 --max-restarts 1 --resume auto")).exit_code,
            0);
}

TEST_F(Supervise, ASignalIsPassedOnOnceAndTheRunEndsWell) {
  for (const std::string& launcher : {std::string(), std::string(" --launcher '") + mpirun(2) + "'"}) {
    const std::string out = launcher.empty() ? "threads" : "processes";
    Job job(train(out, "--max-restarts 3 --steps 1000000 --save-every 10 --keep-last 2" + launcher),
            path(out + ".log"));
    ASSERT_TRUE(wait_for([&] { return saved(out, 10); })) << job.log();
    const pid_t run = job.run(1);
    kill(job.pid(), SIGTERM);
    EXPECT_EQ(job.wait(), 0) << job.log();
    EXPECT_TRUE(has(job.log(), "SIGTERM: asked the run to stop")) << job.log();
    EXPECT_TRUE(has(job.log(), "interrupted after step")) << job.log();
    EXPECT_EQ(count_of(job.log(), "the run is process"), 1) << job.log();
    EXPECT_TRUE(is_over(run));
  }
}

// SIGUSR1 long before the end, then what ends a job: that is the first of two signals. The launcher here only
// writes down what it gets.
TEST_F(Supervise, AnEarlyRequestIsNotTheFirstOfTwo) {
  dir_.write("listener", "#!/bin/bash\ntrap 'echo usr1 >> " + path("got") + "' USR1\ntrap 'echo term >> " +
                             path("got") + "; exit 9' TERM\necho ready >> " + path("got") +
                             "\nwhile :; do sleep 0.05; done\n");
  fs::permissions(path("listener"), fs::perms::owner_all);
  Job job(train("out", "--steps 10 --launcher " + path("listener")), path("log"));
  const auto got = [&](const std::string& want) {
    return wait_for([&] { return text_of(path("got")) == want; });
  };
  ASSERT_TRUE(got("ready\n")) << job.log();
  kill(job.pid(), SIGUSR1);
  ASSERT_TRUE(got("ready\nusr1\n")) << job.log();
  std::this_thread::sleep_for(train::kSameWish + 100ms);
  kill(job.pid(), SIGTERM);
  ASSERT_TRUE(got("ready\nusr1\nusr1\n")) << text_of(path("got")) << job.log();
  std::this_thread::sleep_for(train::kSameWish + 100ms);
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 9) << job.log();
}

// A terminal that goes away.
TEST_F(Supervise, AfterAHangUpTheRunSavesAndEnds) {
  Job job(train("out", "--max-restarts 3 --steps 1000000 --save-every 1000000"), path("log"));
  ASSERT_TRUE(wait_for([&] { return has(text_of(path("out") + "/metrics.jsonl"), "\"step\":3"); }))
      << job.log();
  kill(job.pid(), SIGHUP);
  EXPECT_EQ(job.wait(), 0) << job.log();
  EXPECT_TRUE(has(job.log(), "SIGHUP: asked the run to stop")) << job.log();
  EXPECT_TRUE(saved("out", 3)) << job.log();
}

// Behind a launcher ranks do not get SIGTERM: the supervisor keeps the time. The launcher here passes nothing
// on, as if a rank could not come to an end.
TEST_F(Supervise, TheTimeForSavingEndsBehindALauncherToo) {
  dir_.write("deaf", "#!/bin/bash\ntrap '' USR1\n\"$@\" & wait $!\n");
  fs::permissions(path("deaf"), fs::perms::owner_all);
  Job job(train("out", "--steps 1000000 --save-every 1000000 --save-deadline 1 --launcher " + path("deaf")),
          path("log"));
  ASSERT_TRUE(wait_for([&] { return has(text_of(path("out") + "/metrics.jsonl"), "\"step\":3"); }))
      << job.log();
  const std::vector<pid_t> ranks = children_of(job.run(1));
  ASSERT_FALSE(ranks.empty());
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), train::kSaveDeadlineExit) << job.log();
  EXPECT_TRUE(wait_for([&] { return std::all_of(ranks.begin(), ranks.end(), is_over); }, 10s));
  EXPECT_TRUE(has(job.log(), "--save-deadline: time ran out")) << job.log();
}

TEST_F(Supervise, TheRunDiesWithItsSupervisor) {
  for (const std::string& launcher : {std::string(), std::string(" --launcher '") + mpirun(2) + "'"}) {
    const std::string out = launcher.empty() ? "threads" : "processes";
    Job job(train(out, "--max-restarts 3 --steps 1000000 --save-every 10" + launcher), path(out + ".log"));
    ASSERT_TRUE(wait_for([&] { return saved(out, 10); })) << job.log();
    std::vector<pid_t> all{job.run(1)};
    for (const pid_t rank : children_of(all[0])) all.push_back(rank);
    kill(job.pid(), SIGKILL);
    job.wait();
    const auto over = [&] { return std::all_of(all.begin(), all.end(), is_over); };
    EXPECT_TRUE(wait_for(over, 10s)) << out;
  }
}

// A rank that stands still: the others name it, with the operation and the unit, and write down what all did.
TEST_F(Supervise, AStalledRankIsInTheFlightRecorderFile) {
  Job job(train("out", std::string("--steps 1000000 --deadline 2 --launcher '") + mpirun(3) + "'"),
          path("log"));
  ASSERT_TRUE(wait_for([&] { return count_of(text_of(path("out/metrics.jsonl")), "\n") > 3; })) << job.log();
  const std::vector<pid_t> ranks = children_of(job.run(1));
  ASSERT_EQ(ranks.size(), 3u);
  kill(ranks[1], SIGSTOP);
  const auto stopped = Clock::now();
  EXPECT_NE(job.wait(), 0) << job.log();
  EXPECT_LT(Clock::now() - stopped, 15s);
  EXPECT_GE(count_of(job.log(), "flight-recorder.txt"), 2) << job.log();
  const std::string file = text_of(path("out/flight-recorder.txt"));
  const std::string top = file.substr(0, file.find("Times below"));
  EXPECT_TRUE(has(top, "nothing moved for 2000 ms: ")) << file;
  // In a collective of a unit, or in the exchange that begins a step.
  EXPECT_TRUE(has(top, "ranks 0 and 2 were in ") && has(top, " (operation ")) << file;
  EXPECT_TRUE(has(top, "rank 1 had not arrived")) << file;
  EXPECT_TRUE(has(file, "\nRank 0 (") && has(file, "\nRank 2 (") && has(file, "\nRank 1")) << file;
}

}  // namespace
}  // namespace zeno::test
