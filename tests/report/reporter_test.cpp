#include "zeno/report/reporter.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cerrno>
#include <limits>

#include "tests/support/temp_dir.h"
#include "zeno/base/log.h"

namespace zeno::report {
namespace {

TEST(Reporter, EveryFileGetsStepsAndEvaluations) {
  const test::TempDir folder;
  config::ParsedConfig parsed;
  parsed.config.run.out = folder.path();
  parsed.config.run.model = "model";
  parsed.command = "zeno train --model model --data 'a b.jsonl'";
  Path events;
  {
    Reporter reporter(parsed, 2, 0, {});
    for (int64_t step = 1; step <= 2; ++step) reporter.step({.step = step, .loss = 1.5, .first_bad = {}});
    reporter.evaluation(
        {.step = 2, .loss = 0.25, .perplexity = 1.284, .token_accuracy = 0.875, .tokens = 4321});
    Timeline timeline;
    timeline.spans = {{"compute", "forward", 0, 1}};
    timeline.lanes = {"compute"};
    timeline.duration_ms = 1;
    reporter.finish({.steps = 2}, {}, timeline);
  }
  const std::string csv = read_file(folder.path() / "metrics.csv");
  EXPECT_NE(csv.find(",0.25,1.284,0.875,4321,"), std::string::npos) << csv;
  EXPECT_NE(read_file(folder.path() / "metrics.jsonl").find("\"eval_loss\":0.25"), std::string::npos);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "tensorboard")) {
    const std::string bytes = read_file(entry.path());
    for (const char* tag : {"train/loss", "eval/loss", "eval/epoch"})
      EXPECT_NE(bytes.find(tag), std::string::npos) << tag;
  }
  const std::string report = read_file(folder.path() / "report.html");
  EXPECT_NE(report.find("Step 2 on rank 0"), std::string::npos);
  EXPECT_NE(
      report.find("<pre aria-label=\"command\">zeno train --model model --data &#39;a b.jsonl&#39;</pre>"),
      std::string::npos)
      << report.substr(0, 9000);
}

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

struct FullAtTimes final : FileSystem {
  bool full = false;
  ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) override {
    if (!full) return FileSystem::pwrite(fd, data, bytes, offset);
    errno = ENOSPC;
    return -1;
  }
};

// Of this process; 0 where a sanitizer counts.
size_t allocated_bytes() { return mallinfo2().uordblks; }

// A full disk costs the run nothing when it has room again.
TEST(Reporter, WritesAgainWhatAFullDiskDidNotTake) {
  FullAtTimes disk;
  const FileSystemOverride use(disk);
  const test::TempDir folder;
  config::ParsedConfig parsed;
  parsed.config.run.out = folder.path();
  set_log_level(LogLevel::info);
  testing::internal::CaptureStderr();
  Reporter reporter(parsed, 90, 0, {});
  for (int64_t step = 1; step <= 90; ++step) {
    disk.full = step > 10 && step <= 40;
    reporter.step({.step = step, .loss = 1.5, .first_bad = {}});
    if (step == 30) reporter.evaluation({.step = step, .loss = 0.25});
  }
  reporter.finish({.steps = 90}, {}, {});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(said, "No space left"), 3) << said;  // once for each file
  EXPECT_EQ(count(said, "can be written again; no records were lost"), 3) << said;
  const std::string lines = read_file(folder.path() / "metrics.jsonl");
  EXPECT_EQ(count(lines, "\n"), 90 + 1 + 1);
  EXPECT_EQ(count(read_file(folder.path() / "metrics.csv"), "\n"), 1 + 90 + 1);
  for (const char* step : {"{\"step\":11,", "{\"step\":40,", "{\"event\":\"eval\",\"step\":30,"})
    EXPECT_EQ(count(lines, step), 1) << step;
  const auto events = list_folder(folder.path() / "tensorboard");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(count(read_file(folder.path() / "tensorboard" / events[0]), "train/grad_norm"), 90);
  EXPECT_NE(read_file(folder.path() / "report.html").find("can be written again"), std::string::npos);
}

// Nor does one that is full when the run begins, or goes on after a fault.
TEST(Reporter, BeginsOnAFullDisk) {
  FullAtTimes disk;
  const FileSystemOverride use(disk);
  const test::TempDir folder;
  config::ParsedConfig parsed;
  parsed.config.run.out = folder.path();
  set_log_level(LogLevel::info);
  testing::internal::CaptureStderr();
  disk.full = true;
  Reporter reporter(parsed, 2, 0, {});
  reporter.step({.step = 1, .loss = 1.5, .first_bad = {}});
  disk.full = false;
  reporter.step({.step = 2, .loss = 1.5, .first_bad = {}});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(said, "training continues"), 3) << said;  // once for each file
  EXPECT_EQ(count(said, "can be written again; no records were lost"), 3) << said;
  const std::string csv = read_file(folder.path() / "metrics.csv");
  EXPECT_TRUE(csv.starts_with("step,epoch,loss,")) << csv;
  EXPECT_EQ(count(csv, "\n"), 1 + 2);
  const auto events = list_folder(folder.path() / "tensorboard");
  ASSERT_EQ(events.size(), 1u);
  const std::string bytes = read_file(folder.path() / "tensorboard" / events[0]);
  EXPECT_LT(bytes.find("brain.Event:2"), bytes.find("train/loss"));
  EXPECT_EQ(count(bytes, "train/grad_norm"), 2);
}

TEST(Reporter, SaysWhatIsMissingWhenTheDiskStaysFull) {
  FullAtTimes disk;
  const FileSystemOverride use(disk);
  const test::TempDir folder;
  config::ParsedConfig parsed;
  parsed.config.run.out = folder.path();
  set_log_level(LogLevel::info);
  testing::internal::CaptureStderr();
  Reporter reporter(parsed, 3, 0, {});
  for (int64_t step = 1; step <= 3; ++step) {
    disk.full = step > 1;
    reporter.step({.step = step, .loss = 1.5, .first_bad = {}});
  }
  reporter.finish({.steps = 3}, {}, {});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(said, "training continues"), 3) << said;
  EXPECT_EQ(count(said, "its last 2 records are missing"), 2) << said;
  EXPECT_EQ(count(said, "its last 3 records are missing"), 1) << said;  // metrics.jsonl: its last line too
  EXPECT_EQ(count(said, "the run has no report"), 1) << said;
  EXPECT_EQ(count(said, "; no report"), 1) << said;
  EXPECT_EQ(count(said, "report: "), 0) << said;
  EXPECT_NE(read_file(folder.path() / "metrics.csv").find("\n1,"), std::string::npos);
}

// Steps, evaluations, checkpoints and warnings of a run of any length take no more memory than those of a
// short one.
TEST(Reporter, AMillionStepsTakeNoMoreMemory) {
  struct NoDisk final : FileSystem {
    ssize_t pwrite(int, const void*, size_t bytes, off_t) override { return ssize_t(bytes); }
  } disk;
  const test::TempDir folder;
  config::ParsedConfig parsed;
  parsed.config.run.out = folder.path();
  Reporter reporter(parsed, 1'000'000, 0, {});
  set_log_level(LogLevel::error);
  const size_t before = allocated_bytes();
  size_t settled = 0;
  {
    const FileSystemOverride use(disk);
    for (int64_t step = 1; step <= 1'000'000; ++step) {
      reporter.step({.step = step, .loss = step == 500'000 ? 77.5 : 1.5, .first_bad = {}});
      if (step % 10 == 0) reporter.evaluation({.step = step, .loss = 2});
      if (step % 10 == 5)
        reporter.note(step, ReportEvent::Kind::checkpoint, "writing the checkpoint of a step");
      if (step == 100'000) settled = allocated_bytes();
    }
  }
  EXPECT_LE(allocated_bytes(), settled + (64 << 10));
  EXPECT_LE(allocated_bytes(), before + (4 << 20));
  reporter.finish({.steps = 1'000'000}, {}, {});
  set_log_level(LogLevel::info);
  const std::string page = read_file(folder.path() / "report.html");
  EXPECT_LT(page.size(), size_t(2) << 20);
  EXPECT_NE(page.find("77.5"), std::string::npos) << "the spike is shown";
  EXPECT_NE(page.find("The first 200 of 100000"), std::string::npos);
}

// A long run has more evaluations than the report keeps: those that are no numbers hide none that are.
TEST(Reporter, TheBestEvaluationOutlivesOnesThatAreNoNumbers) {
  struct NoDisk final : FileSystem {
    ssize_t pwrite(int, const void*, size_t bytes, off_t) override { return ssize_t(bytes); }
  } disk;
  const test::TempDir folder;
  config::ParsedConfig parsed;
  parsed.config.run.out = folder.path();
  Reporter reporter(parsed, 5000, 0, {});
  set_log_level(LogLevel::error);
  {
    const FileSystemOverride use(disk);
    constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
    for (int64_t step = 1; step <= 5000; ++step) {
      const double loss = step == 2 ? 0.12345 : step == 4 ? 77.5 : step == 1 || step > 9 ? kNoNumber : 2;
      reporter.evaluation({.step = step, .loss = loss});
    }
  }
  reporter.finish({.steps = 5000}, {}, {});
  set_log_level(LogLevel::info);
  const std::string page = read_file(folder.path() / "report.html");
  EXPECT_NE(page.find("0.12345"), std::string::npos);
  EXPECT_NE(page.find("77.5"), std::string::npos);
}

// TensorBoard shows the files of a folder as one run.
TEST(Reporter, EventsOfARunBeforeGoUnlessThisOneGoesOn) {
  const test::TempDir folder;
  config::ParsedConfig parsed;
  parsed.config.run.out = folder.path();
  make_folders(folder.path() / "tensorboard");
  const Path old = folder.path() / "tensorboard/events.out.tfevents.1.old";
  replace_file(old, "x");
  Reporter(parsed, 3, 2, {});
  EXPECT_TRUE(file_exists(old));
  Reporter(parsed, 3, 0, {});
  EXPECT_FALSE(file_exists(old));
}

}  // namespace
}  // namespace zeno::report
