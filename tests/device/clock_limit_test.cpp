// The clock of a GPU is limited to what was seen and freed however a run ends, with a script in the place of
// nvidia-smi that writes down what it is asked for.
#include "zeno/device/clock_limit.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace zeno::test {
namespace {

using namespace std::chrono_literals;

class ClockLimitTest : public ::testing::Test {
 protected:
  // Asked for clocks it prints `clocks` and then waits to be ended.
  void install(const std::string& clocks, const std::string& on_setting = "") {
    const auto file = dir_.write("nvidia-smi", "#!/bin/sh\nlog=" + log_.string() +
                                                   "\ncase \"$*\" in\n*--query-gpu*) echo query >> $log; " +
                                                   clocks + "; exec sleep 60;;\n*) echo \"$*\" >> $log; " +
                                                   on_setting + ";;\nesac\n");
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
  std::vector<std::string> asked() const {
    std::ifstream file(log_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  template <class Ready>
  static bool wait_for(const Ready& ready) {
    for (int i = 0; i < 6000 && !ready(); ++i) std::this_thread::sleep_for(10ms);
    return ready();
  }

  TempDir dir_;
  std::filesystem::path log_ = dir_.path() / "log";
  const std::string tool_ = dir_.path() / "nvidia-smi";
  // The GPU comes from 1980 MHz; then six clocks of sixty are below 1469.
  const std::string kSwinging =
      "seq 1951 1980; for i in 1 2 3; do seq 1439 15 1700; echo 1500; echo 1500; done";
  const std::vector<std::string> kWholeRun{"-i 0000:1b:00.0 -rgc", "query", "-i 0000:1b:00.0 -lgc 0,1469",
                                           "-i 0000:1b:00.0 -rgc"};
};

TEST(SustainedClock, IsReachedByNineTenths) {
  std::vector<int> seen(100);
  std::iota(seen.rbegin(), seen.rend(), 1401);
  EXPECT_EQ(sustained_clock(seen), 1411);
  EXPECT_EQ(sustained_clock({1980}), 1980);
}

TEST_F(ClockLimitTest, IsWhatWasSeenUntilTheEnd) {
  install(kSwinging);
  {
    ClockLimit limit("0000:1b:00.0", tool_);
    EXPECT_EQ(limit.clock(), 0);
    limit.begin();
    ASSERT_TRUE(wait_for([&] { return limit.clock() > 0 && asked().size() == 3; }));
    EXPECT_EQ(limit.clock(), 1469);
  }
  EXPECT_EQ(asked(), kWholeRun);
}

TEST_F(ClockLimitTest, NothingIsSetByARunThatEndsSooner) {
  install("seq 1400 1440");
  { ClockLimit limit("0", tool_); }
  EXPECT_EQ(asked(), (std::vector<std::string>{"-i 0 -rgc"}));
  {
    ClockLimit limit("0", tool_);
    limit.begin();
    ASSERT_TRUE(wait_for([&] { return asked().size() == 3; }));
  }
  EXPECT_EQ(asked(), (std::vector<std::string>{"-i 0 -rgc", "-i 0 -rgc", "query"}));
}

TEST_F(ClockLimitTest, AProcessThatIsKilledLeavesNoLimit) {
  install(kSwinging);
  const pid_t run = fork();
  if (run == 0) {
    setpgid(0, 0);
    ClockLimit limit("0000:1b:00.0", tool_);
    limit.begin();
    for (;;) pause();
  }
  const bool limited = wait_for([&] { return asked().size() == 3; });
  kill(-run, SIGKILL);
  waitpid(run, nullptr, 0);
  ASSERT_TRUE(limited);
  EXPECT_TRUE(wait_for([&] { return asked() == kWholeRun; }));
}

TEST_F(ClockLimitTest, AGpuThatShowsNoClockStaysFree) {
  install("echo '[N/A]'");
  {
    ClockLimit limit("0", tool_);
    limit.begin();
    ASSERT_TRUE(wait_for([&] { return asked().size() == 2; }));
    EXPECT_EQ(limit.clock(), 0);
  }
  EXPECT_EQ(asked(), (std::vector<std::string>{"-i 0 -rgc", "query"}));
}

TEST_F(ClockLimitTest, WhoMayNotIsToldSo) {
  install("seq 1400 1440", "echo 'no permission to change clocks'; exit 4");
  expect_error(ErrorKind::usage,
               {"--limit-gpu-clock", "0000:1b:00.0", "no permission to change clocks", "root"},
               [&] { ClockLimit limit("0000:1b:00.0", tool_); });
}

}  // namespace
}  // namespace zeno::test
