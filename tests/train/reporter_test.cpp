#include "zeno/train/reporter.h"

#include <gtest/gtest.h>

#include "tests/support/faulty_files.h"
#include "tests/support/temp_dir.h"

namespace zeno::train {
namespace {

TEST(Reporter, EveryFileGetsStepsAndEvaluations) {
  const test::TempDir folder;
  ParsedConfig parsed;
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

// A full disk costs the run its record, not its result.
TEST(Reporter, AFileThatCannotBeWrittenIsLeftAlone) {
  const test::TempDir folder;
  ParsedConfig parsed;
  parsed.config.run.out = folder.path();
  test::FaultyFiles full("metrics.jsonl",
                         {.call = test::FileCall::pwrite, .at = 1, .error = ENOSPC, .forever = true});
  const FileSystemOverride use(full);
  testing::internal::CaptureStderr();
  Reporter reporter(parsed, 3, 0, {});
  for (int64_t step = 1; step <= 3; ++step) reporter.step({.step = step, .loss = 1.5, .first_bad = {}});
  reporter.finish({.steps = 3}, {}, {});
  const std::string said = testing::internal::GetCapturedStderr();
  const std::string warning = "training goes on without metrics.jsonl";
  EXPECT_NE(said.find(warning), std::string::npos) << said;
  EXPECT_EQ(said.find(warning), said.rfind(warning)) << "said once";
  EXPECT_EQ(full.count(test::FileCall::pwrite), 2);
  EXPECT_NE(read_file(folder.path() / "metrics.csv").find("\n3,"), std::string::npos);
  EXPECT_TRUE(file_exists(folder.path() / "report.html"));
}

// TensorBoard shows the files of a folder as one run.
TEST(Reporter, EventsOfARunBeforeGoUnlessThisOneGoesOn) {
  const test::TempDir folder;
  ParsedConfig parsed;
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
}  // namespace zeno::train
