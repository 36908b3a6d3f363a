// Real runs with states on disk: killed at any moment and gone on with, beside each other, on file systems
// that are too small and in folders that are none; and what --offload-optimizer auto makes of a limit.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <random>

#include "tests/support/cli_runs.h"
#include "tests/support/job.h"

namespace zeno::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using nlohmann::json;

class OffloadCli : public CliRuns {
 protected:
  OffloadCli() : CliRuns(64) {
    config_ = dir_.write("ds.json", R"({"zero_optimization": {"sub_group_size": 4096}})").string();
    fs::create_directory(path("disk"));
  }
  std::string train(const std::string& out, const std::string& more) const {
    return train_on_cpu(out, "--config " + config_ + " --seq-len 16 --micro-batch 1 " + more);
  }
  std::string on_disk(const std::string& folder = "disk") const {
    return "--offload-optimizer nvme --nvme-path " + path(folder) + " ";
  }
  std::vector<std::string> swap_files() const {
    std::vector<std::string> found;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(path("disk"), ignored)) found.push_back(entry.path());
    return found;
  }
  // One line of error, the last, with these parts; and no step was made.
  void expect_refused(const std::string& command, int code, const std::vector<std::string>& parts) const {
    const CommandResult result = run_command(command);
    EXPECT_EQ(result.exit_code, code) << result.output;
    const size_t first = result.output.find("error: ");
    ASSERT_NE(first, std::string::npos) << result.output;
    EXPECT_EQ(result.output.find('\n', first), result.output.size() - 1) << result.output;
    for (const std::string& part : parts)
      EXPECT_NE(result.output.find(part, first), std::string::npos) << part << ": " << result.output;
    EXPECT_EQ(result.output.find("resuming after step"), std::string::npos) << result.output;
    EXPECT_TRUE(outcome("refused").empty());
  }

 private:
  std::string config_;
};

TEST_F(OffloadCli, KilledAtAnyMoment) {
  const std::string setting = "--stage 2 --ranks 2 --steps 60 ";
  const auto begin = Clock::now();
  expect_ok(train("whole", setting));
  const double length_us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  const std::vector<std::string> whole = outcome("whole");
  const std::string command = train("killed", setting + on_disk() + "--save-every 5 --resume auto");
  std::mt19937 random(3);
  const int wanted = ZENO_FULL_TESTS ? 30 : 5;
  int kills = 0, left = 0, resumed = 0;
  for (int attempt = 0; (kills < wanted || left == 0 || resumed == 0) && attempt < 4 * wanted; ++attempt) {
    const bool goes_on = fs::exists(path("killed/checkpoints"));
    Job job(command, path("log"));
    const double part = 0.1 + 1.3 * double(random()) / double(std::mt19937::max());
    const auto end = Clock::now() + std::chrono::microseconds(int64_t(part * length_us));
    while (Clock::now() < end && !job.ended()) std::this_thread::sleep_for(1ms);
    if (!job.ended()) kill(job.pid(), SIGKILL);
    const int code = job.wait(10s);  // it may have come to its end just before
    if (code == 128 + SIGKILL) {
      ++kills;
      left += !swap_files().empty();
      resumed += goes_on;
      continue;
    }
    EXPECT_EQ(code, 0) << text_of(path("log"));
    EXPECT_EQ(outcome("killed"), whole);
    fs::remove_all(path("killed"));
  }
  EXPECT_GE(kills, wanted);
  EXPECT_GT(left, 0) << "never killed while the file was there";
  EXPECT_GT(resumed, 0);
  expect_ok(command);
  EXPECT_EQ(outcome("killed"), whole);
  EXPECT_TRUE(swap_files().empty());
}

TEST_F(OffloadCli, ASecondRunInTheSamePlaceIsRefused) {
  const std::string command = train("out", "--steps 1000000 " + on_disk());
  Job job(command, path("log"));
  const auto steps = [&] { return outcome("out").size(); };
  const auto reaches = [&](size_t count) {
    const auto end = Clock::now() + 30s;
    while (steps() < count && Clock::now() < end) std::this_thread::sleep_for(2ms);
    return steps() >= count;
  };
  ASSERT_TRUE(reaches(3)) << text_of(path("log"));
  ASSERT_EQ(swap_files().size(), 1u);
  expect_refused(command, 2, {"--out " + path("out"), "another run is writing there"});
  // The first one has not noticed; a run with another result may use the same folder.
  const size_t before = steps();
  EXPECT_TRUE(reaches(before + 3)) << text_of(path("log"));
  expect_ok(train("other", "--steps 2 " + on_disk()));
  EXPECT_FALSE(job.ended()) << text_of(path("log"));
  EXPECT_EQ(swap_files().size(), 1u);
}

TEST_F(OffloadCli, FoldersThatCannotBeUsed) {
  dir_.write("file", "x");
  expect_refused(train("refused", "--steps 2 " + on_disk("file")), 2, {path("file"), "nvme_path"});
  expect_refused(train("refused", "--steps 2 " + on_disk("file/below")), 2, {path("file/below")});
  expect_refused(train("refused", "--steps 2 " + on_disk("absent")), 2, {path("absent"), "--nvme-path"});
  EXPECT_FALSE(fs::exists(path("absent")));
  expect_refused(train("refused", "--steps 2 --offload-optimizer nvme --nvme-path /proc"), 5, {"/proc"});
  expect_refused(train("refused", "--steps 2 --offload-optimizer nvme"), 2, {"--nvme-path"});
  expect_refused(train("refused", "--steps 2 --offload-optimizer disk"), 2, {"disk", "nvme"});
  expect_refused(train("refused", "--steps 2 " + on_disk("disk," + path("disk"))), 5,
                 {"in use", path("disk")});
  if (getuid() == 0) return;  // may write anywhere
  fs::create_directories(path("closed"));
  fs::permissions(path("closed"), fs::perms::owner_read | fs::perms::owner_exec);
  expect_refused(train("refused", "--steps 2 " + on_disk("closed")), 5,
                 {path("closed"), "Permission denied"});
}

// A file system in memory, for as long as this lives.
class SmallDisk {
 public:
  SmallDisk(std::string folder, int64_t bytes) : folder_(std::move(folder)) {
    fs::create_directories(folder_);
    mounted_ =
        ::mount("zeno-test", folder_.c_str(), "tmpfs", 0, ("size=" + std::to_string(bytes)).c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }

 private:
  std::string folder_;
  bool mounted_ = false;
};

json planned_run(const std::string& train_command) {
  // The same flags; a plan has no data and no result.
  std::string command = train_command;
  command.replace(command.find(" train "), 7, " plan --json ");
  const CommandResult result = run_command(command);
  EXPECT_EQ(result.exit_code, 0) << command << "\n" << result.output;
  const size_t begin = result.output.find("\n{");  // after what auto has chosen
  return json::parse(result.output.substr(begin == std::string::npos ? 0 : begin), nullptr, false)
      .at("bytes");
}

TEST_F(OffloadCli, FileSystemsThatAreTooSmall) {
  const std::string one = train("refused", "--steps 2 " + on_disk("small"));
  const int64_t needed = planned_run(one).at("disk").at("total");
  {
    const SmallDisk disk(path("small"), needed * 9 / 10);
    if (!disk.mounted()) GTEST_SKIP() << "no right to mount";
    expect_refused(one, 5, {"too little space", path("small"), "free", "expected"});
  }
  // Each of two ranks finds enough, and there is not enough for both.
  const std::string two = train("refused", "--steps 2 --stage 2 --ranks 2 " + on_disk("small"));
  {
    const SmallDisk disk(path("small"), int64_t(planned_run(two).at("disk").at("total")) * 3 / 2);
    expect_refused(two, 5, {path("small")});
  }
  const SmallDisk disk(path("small"), 2 * needed);
  expect_ok(train("fits", "--steps 2 " + on_disk("small")));
  expect_ok(train("plain", "--steps 2"));
  EXPECT_EQ(outcome("fits"), outcome("plain"));
}

TEST_F(OffloadCli, AutoStaysWithinTheLimit) {
  for (const std::string setting : {"--steps 3 ", "--steps 3 --ranks 2 --stage 2 --dtype bf16 "}) {
    const json whole = planned_run(train("none", setting));
    const auto memory = [](const json& plan) {
      return double(plan["device"]["total"]) + double(plan["host"]["total"]);
    };
    const double states = double(whole["device"]["moments"]) + double(whole["device"]["masters"]);
    expect_ok(train("none", setting));
    // With room for all but so much of the states.
    const auto limit = [&](double away) { return memory(whole) - away * states; };
    const auto automatic = [&](const std::string& out, double away) {
      return train(out,
                   setting + "--offload-optimizer auto --device-mem " + fmt::format("{:.0f}B ", limit(away)));
    };
    const std::string with_disk = "--nvme-path " + path("disk");
    EXPECT_EQ(planned_run(automatic("auto", 0) + with_disk), whole) << "all fits, and something left";
    int64_t on_disk = 0;
    for (const double away : {0.2, 0.5}) {
      const std::string command = automatic("auto", away) + with_disk;
      const json plan = planned_run(command);
      EXPECT_LE(memory(plan), limit(away)) << away;
      EXPECT_GT(int64_t(plan["disk"]["total"]), on_disk) << away;
      on_disk = plan["disk"]["total"];
      fs::remove_all(path("auto"));
      expect_ok(command);
      EXPECT_EQ(outcome("auto"), outcome("none"));
      std::ifstream file(path("auto/metrics.jsonl"));
      std::string line;
      ASSERT_TRUE(std::getline(file, line));
      const json peak = json::parse(line).at("peak_bytes");
      for (const char* tier : {"device", "host", "disk"})
        EXPECT_EQ(peak[tier], plan[tier]["total"]) << tier << " " << away << ": not what was planned";
    }
    expect_refused(automatic("refused", 0.5), 4, {"--nvme-path"});  // the CPU has no other memory
    expect_refused(automatic("refused", 2) + with_disk, 4, {"needs", "may use"});
  }
}

}  // namespace
}  // namespace zeno::test
