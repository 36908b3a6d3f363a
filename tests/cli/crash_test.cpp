// Real processes under mpirun. One rank is killed in a step, in a save or in a load: nobody hangs, and what
// starts next goes on to the same end. Signals that ask for a checkpoint or for the end get what they ask
// for.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/support/cli_runs.h"
#include "tests/support/job.h"
#include "tests/support/mpirun.h"

namespace zeno::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr int kRanks = 2;
const std::string kMpirun = mpirun(kRanks);
// The launcher ends the other ranks at once instead of a second or two later.
const std::string kAtOnce = "--mca odls_base_sigkill_timeout 0 ";

// Waits until something of a kind happens in a folder.
class FolderWatch {
 public:
  FolderWatch(const std::string& folder, uint32_t events) : fd_(inotify_init1(IN_CLOEXEC)) {
    inotify_add_watch(fd_, folder.c_str(), events);
  }
  ~FolderWatch() { close(fd_); }
  FolderWatch(const FolderWatch&) = delete;
  bool wait(int ms) const {
    pollfd poll_fd{fd_, POLLIN, 0};
    return poll(&poll_fd, 1, ms) > 0;
  }

 private:
  int fd_;
};

class Crash : public CliRuns {
 protected:
  Crash() : CliRuns(64) {}
  std::string train(const std::string& out, const std::string& more) const {
    return train_on_cpu(out, "--seq-len 16 --micro-batch 1 --deadline 20 " + more);
  }
  static bool alive(pid_t process) {
    const std::string state = text_of("/proc/" + std::to_string(process) + "/stat");
    return !state.empty() && state.find(") Z ") == std::string::npos;
  }
  template <class F>
  static bool eventually(F&& condition, std::chrono::seconds longest = 60s) {
    const auto end = Clock::now() + longest;
    while (!condition() && Clock::now() < end) std::this_thread::sleep_for(5ms);
    return condition();
  }
  // Folders of checkpoints, the newest last.
  std::vector<fs::path> folders(const std::string& out) const {
    std::vector<fs::path> found;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(path(out) + "/checkpoints", ignored))
      found.push_back(entry);
    std::sort(found.begin(), found.end());
    return found;
  }
  static bool whole(const fs::path& folder) { return fs::exists(folder / "manifest.json"); }
};

struct Counts {
  int kills = 0, saves = 0, loads = 0, ends = 0;
};

class CrashKills : public Crash {
 protected:
  enum class Moment { save, load, any };

  // Waits for the moment to kill; false: the job was faster.
  bool wait_for(Moment moment, Job& job) {
    const auto end = Clock::now() + 20s;
    std::optional<FolderWatch> watch;
    const std::vector<fs::path> before = folders("killed");
    if (moment == Moment::load && !before.empty()) watch.emplace(before.back().string(), IN_OPEN);
    if (moment == Moment::save) watch.emplace(path("killed/checkpoints"), IN_CREATE);
    while (int(job.children().size()) < kRanks && !job.ended() && Clock::now() < end)
      std::this_thread::sleep_for(1ms);
    while (watch && !watch->wait(1) && !job.ended() && Clock::now() < end) continue;
    // Right then, or a little later.
    const int later = watch ? (random_() % 2 == 0 ? 0 : int(random_() % 3000)) : int(random_() % 400'000);
    std::this_thread::sleep_for(std::chrono::microseconds(later));
    return !job.ended();
  }

  void kill_a_rank(Moment moment, const std::string& command, Counts& counts) {
    Job job(command, path("log"));
    if (!wait_for(moment, job)) {
      ++counts.ends;
      return;
    }
    const std::vector<pid_t> ranks = job.children();
    if (ranks.size() < size_t(kRanks)) {  // all done but for mpirun, which must end well
      EXPECT_EQ(job.wait(30s), 0) << text_of(path("log"));
      ++counts.ends;
      return;
    }
    kill(ranks[random_() % ranks.size()], SIGKILL);
    // Looked at while the others find out: a save that is cut has a folder without a manifest.
    const std::vector<fs::path> found = folders("killed");
    // Open MPI's mpirun hangs itself, now and then, when a rank dies while it connects: ranks are what
    // counts.
    const auto gone = [&] { return std::none_of(ranks.begin(), ranks.end(), alive); };
    EXPECT_TRUE(eventually(gone, 30s)) << "still running: " << text_of(path("log"));
    job.wait(2s);
    ++counts.kills;
    counts.saves += !found.empty() && !whole(found.back());
    counts.loads += moment == Moment::load && !found.empty() &&
                    text_of(path("log")).find("resuming after step") == std::string::npos;
  }

  std::mt19937 random_{11};
};

TEST_F(CrashKills, OneRankAtAnyMoment) {
  const std::string setting = "--stage 3 --steps 120 --save-every 3 ";
  ASSERT_EQ(run_command(train("whole", setting + "--ranks 2")).exit_code, 0);
  const std::string arguments = train("killed", setting + "--resume auto");
  fs::create_directories(path("killed/checkpoints"));
  Counts counts;
  // A slow machine may miss a moment: then it is tried again.
  const int wanted = ZENO_FULL_TESTS ? 200 : 6;
  const auto enough = [&] { return counts.kills >= wanted && counts.saves > 0 && counts.loads > 0; };
  for (int attempt = 0; !enough() && attempt < 2 * wanted + 20; ++attempt) {
    const Moment moment = std::array{Moment::any, Moment::save, Moment::load}[size_t(attempt % 3)];
    const bool at_once = !ZENO_FULL_TESTS || attempt % 2 == 0;
    kill_a_rank(moment, kMpirun + (at_once ? kAtOnce : "") + arguments, counts);
    if (!outcome("killed").empty() && outcome("killed").size() == outcome("whole").size()) {
      EXPECT_EQ(outcome("killed"), outcome("whole"));
      fs::remove_all(path("killed"));
      fs::create_directories(path("killed/checkpoints"));
    }
  }
  const CommandResult last = run_command(kMpirun + arguments);
  EXPECT_EQ(last.exit_code, 0) << last.output;
  EXPECT_EQ(outcome("killed"), outcome("whole"));
  RecordProperty("kills", counts.kills);
  RecordProperty("in_saves", counts.saves);
  RecordProperty("in_loads", counts.loads);
  EXPECT_GT(counts.saves, 0);
  EXPECT_GT(counts.loads, 0);
  printf("%d kills, %d in saves, %d in loads; %d runs were faster\n", counts.kills, counts.saves,
         counts.loads, counts.ends);
}

// What thread ranks have saved, processes load: also another number of them.
TEST_F(Crash, ThreadsToProcesses) {
  ASSERT_EQ(run_command(train("threads", "--stage 3 --ranks 4 --train-batch 12 --steps 4 --save-every 4"))
                .exit_code,
            0);
  const std::vector<std::string> expected = outcome("threads");
  for (const int ranks : {3, 6}) {
    if (!ZENO_FULL_TESTS && ranks != 3) continue;
    for (const int stage : {0, 1, 2, 3}) {
      if (!ZENO_FULL_TESTS && stage != 2) continue;
      fs::remove_all(path("processes"));
      fs::copy(path("threads"), path("processes"), fs::copy_options::recursive);
      const CommandResult result = run_command(
          mpirun(ranks) + train("processes", "--steps 4 --resume auto --stage " + std::to_string(stage)));
      EXPECT_EQ(result.exit_code, 0) << result.output;
      EXPECT_NE(result.output.find("nothing is left to train"), std::string::npos) << result.output;
      EXPECT_EQ(outcome("processes"), expected) << "the hash of all weights, right after loading";
    }
  }
}

// SIGUSR2 asks for a checkpoint, under mpirun as well; then SIGTERM has one written before the model.
TEST_F(Crash, SignalsAndAFileAskForCheckpoints) {
  for (const bool mpi : {false, true}) {
    const std::string out = mpi ? "mpi" : "threads";
    Job job((mpi ? kMpirun : "") +
                train(out, "--steps 1000000 --save-every 1000000 --keep-last 0 --save-deadline 30 " +
                               std::string(mpi ? "" : "--ranks 2")),
            path("log"));
    ASSERT_TRUE(eventually([&] { return outcome(out).size() >= 5; })) << text_of(path("log"));
    kill(job.pid(), SIGUSR2);
    const auto saved = [&](size_t count) {
      return folders(out).size() == count && whole(folders(out).back());
    };
    ASSERT_TRUE(eventually([&] { return saved(1); })) << text_of(path("log"));
    const fs::path request = fs::path(path(out)) / "SAVE";
    std::ofstream(request).close();
    ASSERT_TRUE(eventually([&] { return saved(2) && !fs::exists(request); })) << text_of(path("log"));
    // mpirun itself answers SIGTERM by ending the job; it passes SIGUSR1 on.
    kill(job.pid(), mpi ? SIGUSR1 : SIGTERM);
    EXPECT_EQ(job.wait(30s), 0) << text_of(path("log"));
    const std::vector<fs::path> found = folders(out);
    ASSERT_EQ(found.size(), 3u);
    EXPECT_TRUE(whole(found[2]));
    EXPECT_LE(fs::last_write_time(found[2] / "manifest.json"),
              fs::last_write_time(path(out) + "/model.safetensors"));
    const std::string step = outcome(out)[outcome(out).size() - 2];
    EXPECT_EQ(std::stoll(found[2].filename().string().substr(5)), std::stoll(step));
  }
}

}  // namespace
}  // namespace zeno::test
