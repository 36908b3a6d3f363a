// Every hostile input ends soon, in little memory, with the right exit code and one line that says why, or
// does no harm. `make test` runs a sample, ZENO_FULL_TESTS all.
#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include "tests/faults/hostile_input.h"
#include "tests/support/cli_runs.h"
#include "tests/support/job.h"
#include "tests/support/sanitized.h"

namespace zeno::test {
namespace {

using namespace std::chrono_literals;

constexpr int kSlowness = kSanitized ? 10 : 1;
constexpr size_t kSample = ZENO_FULL_TESTS ? 1 : 10;  // every N-th input is tried
constexpr long kMostMemory = 1 << 20;                 // KiB
constexpr rlim_t kMostSeconds = 10 * kSlowness;       // of the processor
// On the clock, for those that sleep or wait: others may be at work here.
constexpr auto kLongest = std::chrono::seconds(30 * kSlowness);
constexpr size_t kLongestLine = 700;

struct End {
  int exit_code = -1;  // 128 + signal; of SIGXCPU or SIGKILL when it took too long
  long memory = 0;     // most KiB that were resident
};

// Runs `zeno WORDS` with bounds that keep a fault of ours from taking the machine down.
End run(const std::string& words, const std::string& said) {
  malloc_trim(0);  // what this process holds when it forks would count as the other's
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit seconds{kMostSeconds, kMostSeconds + 5}, memory{rlim_t(16) << 30, rlim_t(16) << 30};
    setrlimit(RLIMIT_CPU, &seconds);
    if (!kSanitized) setrlimit(RLIMIT_AS, &memory);  // sanitizers reserve terabytes
    execl("/bin/sh", "sh", "-c", ("exec " + kZeno + " " + words + " </dev/null >" + said + " 2>&1").c_str(),
          nullptr);
    _exit(127);
  }
  const auto give_up = std::chrono::steady_clock::now() + kLongest;
  int status = 0;
  rusage used{};
  while (wait4(pid, &status, WNOHANG, &used) == 0) {
    if (std::chrono::steady_clock::now() > give_up) kill(pid, SIGKILL);
    std::this_thread::sleep_for(1ms);
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), used.ru_maxrss};
}

class HostileInputsTest : public CliRuns {
 protected:
  void SetUp() override {
    CliRuns::SetUp();
    expect_ok(train_on_cpu("trained", "--seq-len 16 --steps 1 --save-every 1"));
  }
  void try_all(const HostileInputs& inputs) {
    for (size_t i = 0; i < inputs.size(); i += kSample) try_one(inputs[i]);
  }

 private:
  void try_one(const HostileInput& input) {
    SCOPED_TRACE(input.name);
    for (const char* left : {"bad", "out", "made", "cache"}) std::filesystem::remove_all(path(left));
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      if (entry.path().filename().string().starts_with("bad.")) std::filesystem::remove_all(entry.path());
    }
    const std::string words = input.make(HostileFolder(dir_.path()));
    const bool prepares = words.starts_with("data ") || words.starts_with("train ");
    const End end = run(words + (prepares ? " --cache " + path("cache") : ""), path("said"));
    const std::string text = text_of(path("said"));
    EXPECT_TRUE(input.exits.contains(end.exit_code)) << "exit code " << end.exit_code << "\n"
                                                     << text.substr(0, 2000);
    if (!kSanitized) {
      EXPECT_LE(end.memory, kMostMemory) << text.substr(0, 2000);
    }
    if (end.exit_code != 0) expect_one_error(text, input.mentions);
  }

  static void expect_one_error(const std::string& text, const std::string& mentions) {
    std::istringstream lines(text);
    int errors = 0;
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), kLongestLine) << line.substr(0, 2000);
      const bool printable =
          std::ranges::none_of(line, [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; });
      EXPECT_TRUE(printable) << line.substr(0, 2000);
      if (line.find("error: ") == std::string::npos) continue;
      ++errors;
      EXPECT_NE(line.find(mentions), std::string::npos) << line;
    }
    EXPECT_EQ(errors, 1) << text.substr(0, 2000);
    EXPECT_LE(text.size(), 5000u) << text.substr(0, 2000);
  }
};

TEST_F(HostileInputsTest, Records) { try_all(hostile_records()); }
TEST_F(HostileInputsTest, DataFiles) { try_all(hostile_data_files()); }
TEST_F(HostileInputsTest, Configs) { try_all(hostile_configs()); }
TEST_F(HostileInputsTest, Weights) { try_all(hostile_weights()); }
TEST_F(HostileInputsTest, Tokenizers) { try_all(hostile_tokenizers()); }
TEST_F(HostileInputsTest, Templates) { try_all(hostile_templates()); }
TEST_F(HostileInputsTest, Flags) { try_all(hostile_flags()); }
TEST_F(HostileInputsTest, DeepSpeedConfigs) { try_all(hostile_deepspeed_configs()); }
TEST_F(HostileInputsTest, Checkpoints) { try_all(hostile_checkpoints()); }

}  // namespace
}  // namespace zeno::test
