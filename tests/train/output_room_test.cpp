#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/small_run.h"
#include "zeno/base/file.h"

namespace zeno::train {
namespace {

// Says that so many bytes are free everywhere.
class FreeBytes final : public FileSystem {
 public:
  explicit FreeBytes(uint64_t bytes) : bytes_(bytes) {}
  int statvfs(const char*, struct statvfs* info) override {
    *info = {};
    info->f_frsize = 1;
    info->f_bavail = bytes_;
    return 0;
  }

 private:
  uint64_t bytes_;
};

// What the run says at its start, and the error it ends with.
std::string said(const test::SmallRuns& runs, uint64_t free, const std::string& flags) {
  FreeBytes disk(free);
  const FileSystemOverride with(disk);
  testing::internal::CaptureStderr();
  set_log_level(LogLevel::warning);
  std::string error;
  static int count = 0;
  try {
    runs.train(fmt::format("out-{}", ++count), "--micro-batch 2 " + flags);
  } catch (const Error& failed) {
    error = failed.what();
  }
  set_log_level(LogLevel::error);
  return testing::internal::GetCapturedStderr() + error;
}

bool warns(const std::string& text) { return text.find("[train] --out") != std::string::npos; }

TEST(OutputRoom, IsKnownBeforeTheFirstStep) {
  const test::SmallRuns runs;
  constexpr uint64_t kModel = 34'720 * sizeof(float);
  EXPECT_NE(said(runs, kModel - 1, "--steps 1").find("the result takes"), std::string::npos);
  EXPECT_FALSE(warns(said(runs, kModel, "--steps 1")));
  // Two that are kept and the one that is written, three states each.
  EXPECT_NE(said(runs, 10 * kModel - 1, "--steps 1 --save-every 5").find("--keep-last"), std::string::npos);
  EXPECT_FALSE(warns(said(runs, 10 * kModel, "--steps 1 --save-every 5")));
  EXPECT_FALSE(warns(said(runs, 7 * kModel, "--steps 1 --save-every 5 --keep-last 1")));
}

TEST(OutputRoom, AnAdapterNeedsLessThanItsModel) {
  const test::SmallRuns runs;
  EXPECT_FALSE(warns(said(runs, 50'000, "--steps 1 --lora-rank 2")));
}

}  // namespace
}  // namespace zeno::train
