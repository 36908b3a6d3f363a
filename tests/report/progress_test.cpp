#include "zeno/report/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "tests/support/temp_dir.h"
#include "tests/support/terminal.h"

namespace zeno::report {
namespace {

ProgressState example_progress() {
  return {.step = 50,
          .total = 200,
          .loss = 2.34567,
          .lr = 3e-4,
          .tokens_per_s = 12345,
          .memory = 1234567890,
          .eta_s = 754,
          .skipped = false};
}

StepRecord record_at(int64_t step) {
  return {.step = step, .loss = 1.5, .lr = 1e-3, .tokens_per_s = 1000, .step_ms = 2000, .first_bad = {}};
}

TEST(ProgressFormat, Rate) {
  EXPECT_EQ(format_rate(0.4), "0");
  EXPECT_EQ(format_rate(950), "950");
  EXPECT_EQ(format_rate(12345), "12.3k");
  EXPECT_EQ(format_rate(1.2e6), "1.20M");
  EXPECT_EQ(format_rate(NAN), "?");
  EXPECT_EQ(format_rate(INFINITY), "?");
}

TEST(ProgressFormat, Duration) {
  EXPECT_EQ(format_duration(7.4), "0:07");
  EXPECT_EQ(format_duration(59.7), "1:00");
  EXPECT_EQ(format_duration(754), "12:34");
  EXPECT_EQ(format_duration(3 * 3600 + 4 * 60 + 5), "3:04:05");
  EXPECT_EQ(format_duration(2 * 86400 + 3 * 3600 + 4 * 60), "2d 03:04");
  EXPECT_EQ(format_duration(NAN), "?");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(INFINITY), "?");
}

TEST(ProgressFormat, PlainLine) {
  EXPECT_EQ(plain_line(example_progress()),
            "step 50/200  loss 2.3457  lr 0.0003  12.3k tokens/s  memory 1.15 GiB  ETA 12:34");
  ProgressState skipped = example_progress();
  skipped.skipped = true;
  EXPECT_NE(plain_line(skipped).find("step skipped"), std::string::npos);
}

TEST(ProgressFormat, BarFitsEveryWidth) {
  for (int width = 0; width <= 200; ++width)
    ASSERT_LE(int(bar_line(example_progress(), width).size()), width);
  EXPECT_EQ(bar_line(example_progress(), -3), "");
  EXPECT_EQ(
      bar_line(example_progress(), 100),
      "[=======                       ] 50/200  loss 2.3457  ETA 12:34  12.3k tok/s  lr 0.0003  1.15 GiB");
  EXPECT_EQ(bar_line(example_progress(), 50), "[====             ] 50/200  loss 2.3457  ETA 12:34");
  EXPECT_EQ(bar_line(example_progress(), 20), "50/200  loss 2.3457");
  EXPECT_EQ(bar_line(example_progress(), 4), "50/2");
}

TEST(ProgressFormat, BarFillsUp) {
  int before = -1;
  ProgressState state = example_progress();
  for (state.step = 0; state.step <= state.total; ++state.step) {
    const std::string line = bar_line(state, 120);
    const int filled = int(std::ranges::count(line, '='));
    ASSERT_GE(filled, before);
    before = filled;
  }
  EXPECT_EQ(before, 30);
  state.total = 0;
  EXPECT_FALSE(bar_line(state, 80).empty());
}

TEST(ProgressFormat, PrintsFirstLastAndNowAndThen) {
  const auto count = [](int64_t total, int64_t every) {
    int n = 0;
    for (int64_t step = 1; step <= total; ++step) n += prints_at(step, total, every);
    return n;
  };
  EXPECT_EQ(count(1000, 0), 21);
  EXPECT_EQ(count(7, 0), 7);
  EXPECT_EQ(count(100, 30), 5);  // 1, 30, 60, 90, 100
  EXPECT_EQ(count(1, 10), 1);
}

TEST(Progress, WritesPlainLinesIntoAFile) {
  const test::TempDir folder;
  const Path path = folder.path() / "log";
  const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY, 0600);
  {
    Progress progress(fd, 10, 5);
    for (int64_t step = 1; step <= 10; ++step) progress.update(record_at(step));
  }
  ::close(fd);
  const std::string text = read_file(path);
  EXPECT_EQ(std::ranges::count(text, '\n'), 3);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_NE(text.find("step 5/10  loss 1.5000  lr 0.001  1.00k tokens/s  memory 0 B  ETA 0:10\n"),
            std::string::npos)
      << text;
}

TEST(Progress, RedrawsInATerminalWithoutHurry) {
  const test::Terminal terminal(60);
  if (terminal.fd() < 0) GTEST_SKIP() << "no pseudo-terminals here";
  Progress progress(terminal.fd(), 2000, 1);
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t step = 1; step <= 2000; ++step) progress.update(record_at(step));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  progress.finish();
  const std::string text = terminal.read();
  // The first step, at most ten a second after it, the last, and the one a terminal adds to the final
  // newline.
  EXPECT_LE(double(std::ranges::count(text, '\r')), 3 + took.count() * 10);
  EXPECT_NE(text.find(" 1/2000"), std::string::npos) << text;
  EXPECT_NE(text.find("2000/2000"), std::string::npos) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 1);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_LE(text.find('\x1b'), 60u);  // "\r" and at most 59 columns
}

}  // namespace
}  // namespace zeno::report
