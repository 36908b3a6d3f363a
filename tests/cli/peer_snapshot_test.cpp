// Snapshots in memory with real processes: what was killed goes on from memory with the bits of a run that
// never stopped, also when a host has lost its memory, and damage is noticed.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/support/cli_runs.h"
#include "tests/support/mpirun.h"
#include "tests/support/text.h"

namespace zeno::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using nlohmann::json;

class PeerSnapshot : public CliRuns {
 protected:
  void SetUp() override {
    std::string name = "/dev/shm/zeno_test_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    memory_ = name;
    CliRuns::SetUp();
  }
  void TearDown() override { fs::remove_all(memory_); }

  std::string train(const std::string& out, const std::string& more) const {
    return train_on_cpu(out, "--seq-len 32 --lr 1e-2 --schedule cosine --warmup 3 " + more);
  }
  std::string in_memory(const std::string& more) const {
    return more + " --peer-snapshot --peer-snapshot-dir " + memory_.string();
  }
  // The same on two hosts of one process each, every one with a memory folder of its own.
  std::string on_two_hosts(const std::string& out, const std::string& more) const {
    const std::string command = "echo $$ > " + path("pid") + ".$OMPI_COMM_WORLD_RANK; exec " +
                                train(out, more) + " --peer-snapshot --peer-snapshot-dir " +
                                memory_.string() + "/host-$OMPI_COMM_WORLD_RANK";
    return mpirun(2) + "bash -c '" + command + "'";
  }
  int64_t lines_of(const std::string& file) const {
    std::ifstream in(file);
    return std::count(std::istreambuf_iterator<char>(in), {}, '\n');
  }
  static pid_t launch(const std::string& command) {
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/bash", "bash", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    return child;
  }
  // Starts the run and kills it, or all processes of its `ranks`, after some steps.
  void kill_after(int64_t steps, const std::string& out, const std::string& command, int ranks = 0) const {
    const pid_t child = launch((ranks > 0 ? "" : "exec ") + command + " > " + path("log") + " 2>&1");
    const auto give_up = std::chrono::steady_clock::now() + 60s;
    while (lines_of(path(out + "/metrics.jsonl")) < steps && std::chrono::steady_clock::now() < give_up)
      std::this_thread::sleep_for(2ms);
    for (int rank = 0; rank < ranks; ++rank) {
      pid_t pid = 0;
      std::ifstream(path("pid") + "." + std::to_string(rank)) >> pid;
      ASSERT_GT(pid, 0);
      kill(pid, SIGKILL);
    }
    if (ranks == 0) kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_GE(lines_of(path(out + "/metrics.jsonl")), steps);
    ASSERT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the run was over before it was killed";
  }
  // Folders of snapshots below, newest first.
  std::vector<fs::path> snapshots() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(memory_)) {
      if (entry.path().filename() == "manifest.json") found.push_back(entry.path().parent_path());
    }
    std::ranges::sort(found, std::greater<>{}, [](const fs::path& p) { return p.filename(); });
    return found;
  }
  void expect_clean(const std::string& out) const {
    EXPECT_TRUE(fs::is_empty(memory_)) << "memory is still in use";
    EXPECT_FALSE(fs::exists(path(out + "/peer_snapshots.id")));
  }

  fs::path memory_;
};

TEST_F(PeerSnapshot, KilledAtAnyMomentTheEndIsTheSameWithoutADisk) {
  const std::string setting = "--ranks 2 --stage 3 --micro-batch 2 --steps 60";
  expect_ok(train("whole", setting));
  std::mt19937 random(11);
  const std::string command =
      "exec " + train("killed", in_memory(setting + " --resume auto >/dev/null 2>&1"));
  int kills = 0;
  for (int attempt = 0; attempt < (ZENO_FULL_TESTS ? 100 : 8); ++attempt) {
    const pid_t child = launch(command);
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 250));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) ++kills;
    if (!WIFSIGNALED(status)) fs::remove_all(path("killed"));
  }
  EXPECT_GT(kills, 0);
  expect_ok(train("killed", in_memory(setting + " --resume auto")));
  EXPECT_EQ(outcome("killed"), outcome("whole"));
  EXPECT_FALSE(fs::exists(path("killed/checkpoints")));
  expect_clean("killed");
}

// The folder is the user's alone, and goes when another run begins in its place.
TEST_F(PeerSnapshot, TheNewestIsTakenAndOthersAreRemoved) {
  const std::string setting = "--ranks 2 --stage 2 --micro-batch 1 --steps 150";
  expect_ok(train("whole", setting));
  kill_after(30, "part", train("part", in_memory(setting + " --save-every 20")));
  ASSERT_GE(snapshots().size(), 1u);
  EXPECT_LE(snapshots().size(), 2u);
  const fs::path folder = snapshots().front().parent_path();
  EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all);
  const CommandResult shown = expect_ok(kZeno + " inspect " + snapshots().front().string());
  fs::copy(path("part"), path("anew"), fs::copy_options::recursive);
  fs::create_directory(path("old"));
  fs::copy(folder, path("old/memory"), fs::copy_options::recursive);

  const CommandResult resumed =
      expect_ok(train("part", in_memory(setting + " --save-every 20 --resume auto")));
  EXPECT_TRUE(has(resumed.output, "from " + folder.string())) << resumed.output;
  EXPECT_EQ(outcome("part"), outcome("whole"));
  expect_clean("part");

  // Without --resume, and where the output folder is another one that was put into its place.
  for (const std::string more : {"", " --resume auto"}) {
    fs::remove_all(path("part"));
    fs::copy(path("old/memory"), folder, fs::copy_options::recursive);
    fs::permissions(folder, fs::perms::owner_all);
    const CommandResult anew = expect_ok(train("part", in_memory(setting + more)));
    EXPECT_TRUE(has(anew.output, "removing what an earlier run left")) << anew.output;
    EXPECT_FALSE(has(anew.output, "resuming after")) << anew.output;
    EXPECT_EQ(outcome("part"), outcome("whole"));
  }

  // Nobody else may have a hand in it.
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::all);
  const CommandResult refused = run_command(train("part", in_memory(setting)));
  EXPECT_EQ(refused.exit_code, 5) << refused.output;
  EXPECT_TRUE(has(refused.output, "no other user can enter")) << refused.output;
}

TEST_F(PeerSnapshot, DamageIsNoticedAndAnOlderOneTaken) {
  const std::string setting = "--ranks 2 --stage 3 --micro-batch 1 --steps 120";
  expect_ok(train("whole", setting));
  const auto damage = [](const fs::path& folder) {
    const fs::path file = folder / "rank-0001-of-0002.safetensors";
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    const auto place = std::streamoff(fs::file_size(file) - 100);
    bytes.seekg(place);
    const char byte = char(bytes.get() ^ 4);
    bytes.seekp(place);
    bytes.put(byte);
  };
  kill_after(30, "part", train("part", in_memory(setting + " --save-every 10")));
  damage(snapshots().front());
  const size_t whole = snapshots().size();
  CommandResult result = expect_ok(train("part", in_memory(setting + " --save-every 10 --resume auto")));
  EXPECT_TRUE(has(result.output, "is damaged: got checksum")) << result.output;
  EXPECT_TRUE(has(result.output, "resuming after step")) << result.output;
  EXPECT_EQ(outcome("part"), outcome("whole"));
  EXPECT_GE(whole, 1u);

  // All of the memory's: the disk's is taken.
  kill_after(30, "other", train("other", in_memory(setting + " --save-every 10")));
  for (const fs::path& folder : snapshots()) damage(folder);
  result = expect_ok(train("other", in_memory(setting + " --save-every 10 --resume auto")));
  EXPECT_TRUE(has(result.output, "from " + path("other/checkpoints"))) << result.output;
  EXPECT_EQ(outcome("other"), outcome("whole"));
}

TEST_F(PeerSnapshot, AnotherNumberOfRanksReadsThemOnOneHost) {
  const std::string setting = "--reproducible --micro-batch 1 --steps 120 --train-batch 2";
  expect_ok(train("whole", setting + " --ranks 1"));
  kill_after(30, "part", train("part", in_memory(setting + " --ranks 2 --stage 3")));
  const CommandResult result = expect_ok(train("part", in_memory(setting + " --ranks 1 --resume auto")));
  EXPECT_TRUE(has(result.output, "resuming after step")) << result.output;
  EXPECT_EQ(outcome("part"), outcome("whole"));
}

TEST_F(PeerSnapshot, AnInterruptedRunStaysThereWhenNothingElseHasIt) {
  const std::string setting = "--ranks 2 --stage 1 --micro-batch 1 --steps 150";
  expect_ok(train("whole", setting));
  const pid_t child = launch("exec " + train("part", in_memory(setting) + " > " + path("log") + " 2>&1"));
  while (lines_of(path("part/metrics.jsonl")) < 20) std::this_thread::sleep_for(2ms);
  kill(child, SIGTERM);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  ASSERT_FALSE(snapshots().empty());
  const CommandResult result = expect_ok(train("part", in_memory(setting + " --resume auto")));
  EXPECT_TRUE(has(result.output, "resuming after step")) << result.output;
  EXPECT_EQ(outcome("part"), outcome("whole"));
  expect_clean("part");
}

// The supervisor starts a killed run again, and no disk is needed for that.
TEST_F(PeerSnapshot, ARestartGoesOnFromMemory) {
  const std::string setting = "--ranks 2 --stage 3 --micro-batch 1 --steps 150";
  expect_ok(train("whole", setting));
  const pid_t supervisor = launch("exec " + train("part", in_memory(setting + " --max-restarts 2")) + " > " +
                                  path("log") + " 2>&1");
  while (lines_of(path("part/metrics.jsonl")) < 20) std::this_thread::sleep_for(2ms);
  pid_t child = 0;
  std::ifstream(fmt::format("/proc/{0}/task/{0}/children", supervisor)) >> child;
  ASSERT_GT(child, 0);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(supervisor, &status, 0);
  std::ifstream file(path("log"));
  const std::string log{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << log;
  EXPECT_TRUE(has(log, "from " + memory_.string())) << log;
  EXPECT_EQ(outcome("part"), outcome("whole"));
  expect_clean("part");
}

// Two hosts; the memory of one is lost with it.
TEST_F(PeerSnapshot, ALostHostIsBroughtBackFromItsPartner) {
  for (const int stage : {3, 0}) {
    const std::string setting = "--micro-batch 1 --steps 120 --stage " + std::to_string(stage);
    expect_ok(train("whole", setting + " --ranks 2"));
    for (const int lost : {0, 1}) {
      if (!ZENO_FULL_TESTS && lost == (stage == 0)) continue;
      fs::remove_all(path("part"));
      kill_after(20, "part", on_two_hosts("part", setting), 2);
      EXPECT_TRUE(fs::exists(memory_ / "host-0") && fs::exists(memory_ / "host-1"));
      fs::remove_all(memory_ / ("host-" + std::to_string(lost)));
      const CommandResult result = expect_ok(on_two_hosts("part", setting + " --resume auto"));
      EXPECT_TRUE(has(result.output, "came from another host")) << result.output;
      EXPECT_TRUE(has(result.output, "resuming after step")) << result.output;
      EXPECT_EQ(outcome("part"), outcome("whole")) << "stage " << stage << ", lost host " << lost;
    }
  }
  for (const char* host : {"host-0", "host-1"}) EXPECT_TRUE(fs::is_empty(memory_ / host));
}

// Files that are on several hosts serve the ranks that wrote them.
TEST_F(PeerSnapshot, OtherRanksOnSeveralHostsTakeTheDisks) {
  const std::string setting = "--reproducible --micro-batch 1 --steps 120 --train-batch 4";
  expect_ok(train("whole", setting + " --ranks 1"));
  kill_after(20, "part", on_two_hosts("part", setting + " --stage 3 --save-every 10"), 2);
  // As if a third host had been there: its file is nowhere.
  for (const fs::path& folder : snapshots()) {
    for (const char* name : {"rank-0000-of-0002.safetensors", "rank-0001-of-0002.safetensors"}) {
      if (has(folder.string(), "host-0")) continue;
      fs::remove(folder / name);
    }
  }
  const std::string one = train("part", setting +
                                            " --save-every 10 --resume auto --ranks 1 --peer-snapshot "
                                            "--peer-snapshot-dir " +
                                            memory_.string() + "/host-1");
  const CommandResult result = expect_ok(one);
  EXPECT_TRUE(has(result.output, "another number of ranks on several hosts")) << result.output;
  EXPECT_TRUE(has(result.output, "from " + path("part/checkpoints"))) << result.output;
  EXPECT_EQ(outcome("part"), outcome("whole"));
}

TEST_F(PeerSnapshot, ThePlanSaysWhatTheyNeed) {
  const auto staging = [&](const std::string& more) {
    const std::string text = expect_ok(kZeno + " plan --model " + path("model") +
                                       " --device cpu --ranks 2 --stage 3 --json " + more)
                                 .output;
    return json::parse(text.substr(text.find('{'))).at("bytes").at("host").at("staging").get<int64_t>();
  };
  const int64_t others = staging(""), one = staging("--save-every 5") - others;
  EXPECT_GT(one, 0);
  EXPECT_EQ(staging("--peer-snapshot") - others, 3 * one);
  EXPECT_EQ(staging("--peer-snapshot 7 --save-every 5") - others, 3 * one);
  EXPECT_EQ(staging("--peer-snapshot 0"), others);
}

}  // namespace
}  // namespace zeno::test
