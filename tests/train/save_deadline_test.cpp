// SIGTERM with a deadline, in a process of its own: a disk that is too slow ends it in time, with a message
// and an exit code of its own, and the checkpoint before is whole.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/support/small_run.h"
#include "zeno/checkpoint/checkpoint.h"
#include "zeno/train/interrupt.h"

namespace zeno::test {
namespace {

using namespace std::chrono_literals;

constexpr const char* kFlags = "--ranks 2 --stage 3 --micro-batch 1 --save-every 4 ";

// Asks for the end when the second checkpoint begins, which never gets done.
class HangingDisk final : public FileSystem {
 public:
  int open(const char* path, int flags, mode_t mode) override {
    if (std::string(path).find("step-00000008") != std::string::npos) {
      if (!asked_.exchange(true)) kill(getpid(), SIGTERM);
      std::this_thread::sleep_for(60s);
    }
    return FileSystem::open(path, flags, mode);
  }

 private:
  std::atomic<bool> asked_{false};
};

TEST(SaveDeadline, EndsInTimeAndLeavesTheCheckpointBefore) {
  const SmallRuns runs;
  const auto begin = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) {
    dup2(::open(runs.path("stderr").c_str(), O_CREAT | O_WRONLY, 0600), STDERR_FILENO);
    HangingDisk disk;
    const FileSystemOverride use(disk);
    runs.train("out", std::string(kFlags) + "--steps 1000000 --save-deadline 1");
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), train::kSaveDeadlineExit);
  const std::string said = read_file(runs.path("stderr"));
  EXPECT_NE(said.find("--save-deadline: time ran out"), std::string::npos) << said;
  EXPECT_EQ(checkpoint::list_checkpoints(runs.path("out/checkpoints")).size(), 1u);
  EXPECT_TRUE(checkpoint::find_damage(runs.checkpoint("out", 4)).empty());
  // And the run goes on from there.
  runs.train("whole", std::string(kFlags) + "--steps 10");
  runs.train("out", std::string(kFlags) + "--steps 10 --resume auto");
  EXPECT_EQ(runs.outcome("out"), runs.outcome("whole"));
}

}  // namespace
}  // namespace zeno::test
