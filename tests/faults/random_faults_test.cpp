// Faults at random moments of a run: kills, stops, signals, disks that fill, turn read-only or stop
// answering, for a while or for good. Each run ends in time, with exit code 0 and the bits of an undisturbed
// run, or with a fault that is named; and what it left resumes to those bits. `make test` runs a sample,
// ZENO_FULL_TESTS all.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include "tests/faults/stalling.h"
#include "tests/support/cli_runs.h"
#include "tests/support/job.h"
#include "tests/support/mpirun.h"

namespace zeno::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr int kTrials = ZENO_FULL_TESTS ? 400 : 6;

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// A small disk of its own, which can be full or read-only.
class SmallDisk {
 public:
  SmallDisk() { mount("none", path().c_str(), "tmpfs", 0, "size=16m"); }
  ~SmallDisk() { umount2(path().c_str(), MNT_DETACH); }
  const fs::path& path() const { return dir_.path(); }
  void fill() const {
    std::ofstream file(path() / "filler", std::ios::binary);
    const std::string block(1 << 16, 'x');
    while (file.write(block.data(), std::streamsize(block.size())).flush()) {
    }
  }
  void empty() const { fs::remove(path() / "filler"); }
  void set_read_only(bool on) const {
    // Forced: files are open for writing.
    mount("none", path().c_str(), "tmpfs", MS_REMOUNT | (on ? MS_RDONLY : 0), "size=16m");
  }

 private:
  TempDir dir_;
};

enum class Fault { kill, stop, signals, full, read_only, stall };
constexpr const char* kNames[] = {"kill", "stop", "signals", "full disk", "read-only disk", "stalled disk"};

class RandomFaults : public CliRuns {
 protected:
  void SetUp() override {
    if (!StallingDisk::available()) GTEST_SKIP() << "mounting file systems takes root and /dev/fuse";
    CliRuns::SetUp();
    const auto begin = std::chrono::steady_clock::now();
    expect_ok(train("", path("whole"), ""));
    whole_took_ =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
    whole_ = outcome("whole");
  }
  std::string train(const std::string& launcher, const fs::path& out, const std::string& more) const {
    const std::string flags =
        " --ranks 2 --stage 2 --micro-batch 1 --seq-len 32 --steps 600 --save-every 20 "
        "--keep-last 2 --deadline 2 --disk-deadline 2 --resume auto ";
    std::string ranks = flags;
    if (!launcher.empty()) ranks.replace(ranks.find("--ranks 2"), 9, "");
    return launcher + kZeno + " train --model " + path("model") + " --data generated --device cpu --cache " +
           path("cache") + " --out " + out.string() + ranks + plain_flags(flags) + more;
  }

  std::vector<std::string> whole_;
  std::chrono::milliseconds whole_took_{};
};

// One trial, all of whose choices follow from its number.
struct Trial {
  Trial(int number, std::chrono::milliseconds run) : dice(unsigned(number) * 2654435761u) {
    fault = Fault(number % 6);
    processes = roll(3) == 0;
    supervised = !processes && roll(3) == 0;
    lasting = roll(2) == 0;
    when = run * roll(1000) / 1000;
  }
  int roll(int sides) { return int(dice() % unsigned(sides)); }

  std::mt19937 dice;
  Fault fault;
  bool processes, supervised, lasting;
  std::chrono::milliseconds when;
};

// Ranks, where they are processes, or the one that has them. A process that mpirun has made and that is not
// ours yet is mpirun's: stopped, it would stop that for good.
std::vector<pid_t> ranks_of(const Job& job, const Trial& trial) {
  if (!trial.processes && !trial.supervised) return {job.pid()};
  std::vector<pid_t> ranks = job.children();
  std::erase_if(ranks, [](pid_t pid) {
    std::error_code gone;
    return fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", gone) != fs::path(kZeno);
  });
  return ranks;
}

void send_signals(const Job& job, Trial& trial) {
  constexpr int kStops[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
  const int first = trial.processes ? SIGUSR1 : kStops[trial.roll(4)];  // mpirun dies of the others
  kill(job.pid(), first);
  for (int more = trial.roll(3); more > 0; --more) {
    std::this_thread::sleep_for(std::chrono::milliseconds(trial.roll(12)));
    kill(job.pid(), SIGCONT);
    kill(job.pid(), first);
  }
}

void stop_one(const Job& job, Trial& trial) {
  const std::vector<pid_t> ranks = ranks_of(job, trial);
  if (ranks.empty()) return;
  const pid_t rank = ranks[size_t(trial.roll(int(ranks.size())))];
  kill(rank, SIGSTOP);
  // One process alone waits for nobody; others must not wait for ever.
  if (trial.lasting && trial.processes) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(trial.roll(800)));
  kill(rank, SIGCONT);
}

TEST_F(RandomFaults, EndWithTheBitsOfAnUndisturbedRunOrByName) {
  std::map<std::string, int> ends;
  for (int number = 0; number < kTrials && !HasFailure(); ++number) {
    Trial trial(number, whole_took_);
    const StallingDisk stalling;
    const SmallDisk small;
    const bool stalls = trial.fault == Fault::stall;
    const fs::path out = (stalls ? stalling.path() : small.path()) / "out";
    const std::string said = path("said" + std::to_string(number));
    SCOPED_TRACE(testing::Message() << "trial " << number << ": " << kNames[int(trial.fault)]
                                    << (trial.processes    ? ", processes"
                                        : trial.supervised ? ", supervised"
                                                           : "")
                                    << (trial.lasting ? ", lasting" : "") << " after " << trial.when.count()
                                    << " ms");
    Job job(train(trial.processes ? mpirun(2) : "", out, trial.supervised ? "--max-restarts 2" : ""), said);
    std::this_thread::sleep_for(trial.when);
    const auto pause = std::chrono::milliseconds(trial.roll(600));
    switch (trial.fault) {
      case Fault::kill: {
        const std::vector<pid_t> ranks = ranks_of(job, trial);
        if (!ranks.empty()) kill(ranks[size_t(trial.roll(int(ranks.size())))], SIGKILL);
        break;
      }
      case Fault::stop:
        stop_one(job, trial);
        break;
      case Fault::signals:
        send_signals(job, trial);
        break;
      case Fault::full:
        small.fill();
        if (!trial.lasting) std::this_thread::sleep_for(pause), small.empty();
        break;
      case Fault::read_only:
        small.set_read_only(true);
        if (!trial.lasting) std::this_thread::sleep_for(pause), small.set_read_only(false);
        break;
      case Fault::stall:
        stalling.stop();
        if (!trial.lasting) std::this_thread::sleep_for(pause), stalling.go_on();
        break;
    }
    // Processes have a minute to start, also those that wait for one that was stopped then.
    const int exit_code = job.wait(120s);
    stalling.go_on();
    small.set_read_only(false);
    small.empty();
    const std::string text = text_of(said);
    ASSERT_NE(exit_code, -1) << "it did not end\n" << text;
    const bool killed = trial.fault == Fault::kill || trial.fault == Fault::signals;
    const bool named = has(text, "error: ") || has(text, "warning: [supervisor]");
    EXPECT_TRUE(exit_code == 0 || named || (killed && exit_code > 128)) << exit_code << "\n" << text;
    // Nobody asked it to stop: exit code 0 says that everything is there.
    if (exit_code == 0 && trial.fault != Fault::signals) {
      const fs::path left = stalls ? stalling.files() / "out" : out;
      EXPECT_TRUE(has(text, "weights_hash " + whole_.back())) << text;
      EXPECT_TRUE(fs::exists(left / "model.safetensors")) << text;
    }
    ++ends[std::string(kNames[int(trial.fault)]) + ": exit code " + std::to_string(exit_code)];
    const CommandResult resumed = run_command(train("", out, ""));
    ASSERT_EQ(resumed.exit_code, 0) << text << resumed.output;
    fs::remove_all(path("out"));
    fs::copy(stalls ? stalling.files() / "out" : out, path("out"), fs::copy_options::recursive);
    EXPECT_EQ(outcome("out").back(), whole_.back()) << text << resumed.output;
    // Steps that a full disk has cost are not there; the others are as they were.
    std::vector<std::string> lines = outcome("out"), expected = whole_;
    std::ranges::sort(lines);
    std::ranges::sort(expected);
    EXPECT_TRUE(std::ranges::includes(expected, lines)) << text << resumed.output;
    fs::remove(said);
  }
  for (const auto& [end, count] : ends) std::printf("%4d  %s\n", count, end.c_str());
}

}  // namespace
}  // namespace zeno::test
