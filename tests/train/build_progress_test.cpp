#include "zeno/train/build_progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/terminal.h"
#include "zeno/base/log.h"
#include "zeno/train/interrupt.h"

namespace zeno::train {
namespace {

constexpr uint64_t kMiB = 1 << 20;

data::BuildState at(uint64_t mib) {
  return {.bytes_read = mib * kMiB,
          .bytes_total = 100 * kMiB,
          .samples = int64_t(mib) * 1000,
          .tokens = int64_t(mib) * 250000};
}

TEST(BuildProgress, Lines) {
  EXPECT_EQ(build_plain_line(at(25), 30),
            "reading data: 25.00 MiB of 100.00 MiB (25 %)  25,000 samples  6,250,000 tokens  ETA 1:30");
  EXPECT_EQ(build_bar_line(at(25), 10, 120),
            "[=======                       ] reading data 25 %  ETA 0:30  25.0k samples  6.25M tokens  2.50 "
            "MiB/s");
  for (int width = 0; width <= 150; ++width) ASSERT_LE(int(build_bar_line(at(25), 10, width).size()), width);
  EXPECT_NE(build_bar_line({}, 0, 80).find("100 %"), std::string::npos);   // empty files
  EXPECT_NE(build_plain_line(at(0), 1).find("ETA ?"), std::string::npos);  // nothing to go by yet
}

TEST(BuildProgress, AFileGetsALineNowAndThen) {
  const test::TempDir folder;
  const Path path = folder.path() / "log";
  const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY, 0600);
  {
    BuildDisplay display(fd);
    const auto begin = BuildDisplay::Clock::now();
    for (int s = 0; s <= 25; ++s) display.update(at(uint64_t(s) * 4), begin + std::chrono::seconds(s));
    for (int s = 26; s <= 50; ++s) display.update(at(uint64_t(s - 26)), begin + std::chrono::seconds(s));
  }
  ::close(fd);
  const std::string text = read_file(path);
  EXPECT_EQ(std::ranges::count(text, '\n'), 5) << text;
  EXPECT_NE(text.find("4.00 MiB of 100.00 MiB (4 %)"), std::string::npos) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(BuildProgress, ATerminalSeesABarAndLogLinesBelowIt) {
  const test::Terminal terminal(70);
  if (terminal.fd() < 0) GTEST_SKIP() << "no pseudo-terminals here";
  set_log_rank(-1);  // whatever ran before in this process
  set_log_level(LogLevel::info);
  {
    BuildDisplay display(terminal.fd());
    display.update(at(10));
    EXPECT_TRUE(exchange_open_line(true));
    testing::internal::CaptureStderr();
    log_warning("a bad line");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "\nwarning: a bad line\n");
    EXPECT_FALSE(exchange_open_line(false));
    display.update(at(100));
    display.update(at(100));
  }
  const std::string text = terminal.read();
  EXPECT_NE(text.find("reading data 10 %"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("\n")) << text;
  EXPECT_NE(text.find("reading data 100 %"), std::string::npos) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 1);
}

TEST(BuildProgress, CtrlCEndsIt) {
  const data::BuildProgress progress = build_progress(1);
  progress(at(1));
  const Interrupt interrupt;
  std::raise(SIGINT);
  test::expect_error(ErrorKind::usage, {"interrupted", "nothing was trained"}, [&] { progress(at(2)); });
}

}  // namespace
}  // namespace zeno::train
