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

#include "tests/faults/interrupted_run.h"
#include "tests/faults/stalling.h"
#include "tests/support/cli_runs.h"
#include "tests/support/job.h"
#include "tests/support/mpirun.h"
#include "tests/support/text.h"

namespace zeno::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr int kTrials = ZENO_FULL_TESTS ? 200 : 3;  // of each kind

// A small disk of its own, which can be full.
class SmallDisk {
 public:
  static bool available() {
    try {
      const SmallDisk tried;
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
  SmallDisk() {
    if (mount("none", path().c_str(), "tmpfs", 0, "size=16m") != 0)
      throw std::runtime_error("cannot mount a file system of memory");
  }
  ~SmallDisk() { umount2(path().c_str(), MNT_DETACH); }
  const fs::path& path() const { return dir_.path(); }
  void fill() const {
    std::ofstream file(path() / "filler", std::ios::binary);
    const std::string block(1 << 16, 'x');
    while (file.write(block.data(), std::streamsize(block.size())).flush()) {
    }
  }
  void empty() const { fs::remove(path() / "filler"); }

 private:
  TempDir dir_;
};

enum class Fault { kill, stop, signals, full, read_only, stall };
constexpr const char* kNames[] = {"kill", "stop", "signals", "full disk", "read-only disk", "stalled disk"};

// One trial, all of whose choices follow from its number.
struct Trial {
  Trial(int number, Fault first, std::chrono::milliseconds run) : dice(unsigned(number) * 2654435761u) {
    fault = Fault(int(first) + number % 3);
    processes = roll(3) == 0;
    supervised = !processes && roll(3) == 0;
    lasting = roll(2) == 0;
    when = run * roll(1000) / 1000;
  }
  int roll(int sides) { return int(dice() % unsigned(sides)); }
  std::string text() const {
    return std::string(kNames[int(fault)]) +
           (processes    ? ", processes"
            : supervised ? ", supervised"
                         : "") +
           (lasting ? ", lasting" : "") + " after " + std::to_string(when.count()) + " ms";
  }

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

void kill_one(const Job& job, Trial& trial) {
  const std::vector<pid_t> ranks = ranks_of(job, trial);
  if (!ranks.empty()) kill(ranks[size_t(trial.roll(int(ranks.size())))], SIGKILL);
}

constexpr int kStops[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};

void send_signals(const Job& job, Trial& trial) {
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

// Where a run writes, and what can go wrong with it.
struct Place {
  explicit Place(Fault fault, const fs::path& plain) {
    if (fault == Fault::full) small.emplace();
    if (fault == Fault::read_only || fault == Fault::stall) disk.emplace();
    out = (small ? small->path() : disk ? disk->path() : plain) / "out";
    files = disk ? disk->files() / "out" : out;
  }
  void fail(Fault fault) const {
    if (fault == Fault::full) small->fill();
    if (fault == Fault::read_only) disk->become_read_only();
    if (fault == Fault::stall) disk->stop();
  }
  void go_on() const {
    if (small) small->empty();
    if (disk) disk->go_on();
  }

  std::optional<SmallDisk> small;
  std::optional<StallingDisk> disk;
  fs::path out, files;  // the folder as the run sees it, and past the disk
};

class RandomFaults : public CliRuns {
 protected:
  void SetUp() override {
    CliRuns::SetUp();
    const auto begin = std::chrono::steady_clock::now();
    expect_ok(train("", path("whole"), ""));
    whole_took_ =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
    whole_ = outcome("whole");
  }
  std::string train(const std::string& launcher, const fs::path& out, const std::string& more) const {
    const std::string flags =
        " --stage 2 --micro-batch 1 --seq-len 32 --steps 600 --save-every 20 --keep-last 2 --resume auto ";
    return launcher + kZeno + " train --model " + path("model") + " --data generated --device cpu --cache " +
           path("cache") + " --out " + out.string() + (launcher.empty() ? " --ranks 2" : "") + flags +
           plain_flags(flags) + more;
  }
  void try_all(Fault first) {
    std::map<std::string, int> ends;
    for (int number = 0; number < kTrials && !HasFailure(); ++number) {
      Trial trial(number, first, whole_took_);
      SCOPED_TRACE(testing::Message() << "trial " << number << ": " << trial.text());
      const int exit_code = try_one(trial);
      ++ends[std::string(kNames[int(trial.fault)]) + ": exit code " + std::to_string(exit_code)];
    }
    for (const auto& [end, count] : ends) std::printf("%4d  %s\n", count, end.c_str());
  }

 private:
  int try_one(Trial& trial);
  void expect_right_end(const Trial& trial, int exit_code, bool trained, const Place& place) const;
  void expect_what_it_says(const Place& place, bool may_be_early) const;
  void expect_resumes(const Place& place);

  std::string said() const { return text_of(path("said")); }

  std::vector<std::string> whole_;
  std::chrono::milliseconds whole_took_{};
};

int RandomFaults::try_one(Trial& trial) {
  fs::remove_all(path("plain"));
  fs::create_directory(path("plain"));
  const Place place(trial.fault, path("plain"));
  // Only where somebody does not answer: a machine that is busy with other things may keep us waiting, too.
  const bool waits = trial.fault == Fault::stop || trial.fault == Fault::stall;
  Job job(train(trial.processes ? mpirun(2) : "", place.out,
                std::string(trial.supervised ? "--max-restarts 2" : "") +
                    (waits ? " --deadline 2 --disk-deadline 2" : "")),
          path("said"));
  std::this_thread::sleep_for(trial.when);
  const bool trained = has(text_of(place.files / "metrics.jsonl"), "\n");
  const auto pause = std::chrono::milliseconds(trial.roll(600));
  if (trial.fault == Fault::kill) kill_one(job, trial);
  if (trial.fault == Fault::stop) stop_one(job, trial);
  if (trial.fault == Fault::signals) send_signals(job, trial);
  place.fail(trial.fault);
  if (!trial.lasting) std::this_thread::sleep_for(pause), place.go_on();
  // Processes have a minute to start, also those that wait for one that was stopped then.
  const int exit_code = job.wait(120s);
  place.go_on();
  EXPECT_NE(exit_code, -1) << "it did not end\n" << said();
  if (!HasFailure()) expect_right_end(trial, exit_code, trained, place);
  if (!HasFailure()) expect_resumes(place);
  return exit_code;
}

// `trained`: before the fault; it was ready for signals, then.
void RandomFaults::expect_right_end(const Trial& trial, int exit_code, bool trained,
                                    const Place& place) const {
  const std::string text = said();
  EXPECT_FALSE(has(text, "internal: ")) << text;
  if (exit_code == 0) return expect_what_it_says(place, trial.fault == Fault::signals);
  const auto is_named = [&](std::string_view name) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (has(line, "error: ") && has(line, name)) return true;
    }
    return false;
  };
  const bool peer = exit_code == 6 && is_named("rank ");
  bool right = false;
  switch (trial.fault) {
    case Fault::kill:
      right = !trial.supervised && (exit_code == 128 + SIGKILL || (trial.processes && peer));
      break;
    case Fault::stop:
      right = peer;
      break;
    case Fault::signals: {
      // Open MPI's mpirun may crash on its way out when a rank was killed before it was ready.
      const bool mpirun_crashed = exit_code == 128 + SIGSEGV && has(text, "PMIx_server_finalize");
      const bool by_signal = std::ranges::find(kStops, exit_code - 128) != std::end(kStops);
      right = !trained && (by_signal || (trial.processes && mpirun_crashed));
      break;
    }
    case Fault::full:
    case Fault::read_only:
    case Fault::stall:
      // Of processes, one that only waits for the other may be gone first.
      right = (exit_code == 5 && is_named(place.out.string())) || (trial.processes && peer);
  }
  EXPECT_TRUE(right) << exit_code << "\n" << text;
}

// Exit code 0 says that everything is there: the whole run, or all of it until it was asked to stop.
void RandomFaults::expect_what_it_says(const Place& place, bool may_be_early) const {
  const std::string text = said();
  if (may_be_early && has(text, "interrupted after step ")) {
    expect_interrupted_run_saved(text, place.files);
  } else {
    EXPECT_TRUE(has(text, "weights_hash " + whole_.back())) << text;
    EXPECT_TRUE(fs::exists(place.files / "model.safetensors")) << text;
  }
}

void RandomFaults::expect_resumes(const Place& place) {
  const CommandResult resumed = run_command(train("", place.out, ""));
  const std::string text = said() + resumed.output;
  ASSERT_EQ(resumed.exit_code, 0) << text;
  fs::remove_all(path("out"));
  fs::copy(place.files, path("out"), fs::copy_options::recursive);
  std::vector<std::string> lines = outcome("out"), expected = whole_;
  EXPECT_EQ(lines.back(), expected.back()) << text;
  // Steps that a full disk has cost are not there; the others are as they were.
  std::ranges::sort(lines);
  std::ranges::sort(expected);
  EXPECT_TRUE(std::ranges::includes(expected, lines)) << text;
}

TEST_F(RandomFaults, OfProcessesEndWithTheBitsOfAnUndisturbedRunOrByName) { try_all(Fault::kill); }

TEST_F(RandomFaults, OfDisksEndWithTheBitsOfAnUndisturbedRunOrByName) {
  if (!StallingDisk::available() || !SmallDisk::available()) GTEST_SKIP() << "cannot mount file systems here";
  try_all(Fault::full);
}

}  // namespace
}  // namespace zeno::test
