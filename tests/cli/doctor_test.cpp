#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/command.h"
#include "tests/support/temp_dir.h"
#include "zeno/plan/machine/machine.h"

namespace zeno::test {
namespace {

const std::string kDoctor = std::string(ZENO_BINARY_DIR) + "/zeno doctor ";

void expect_one_line(const std::string& flags, int exit_code, const std::string& part) {
  const CommandResult result = run_command(kDoctor + flags);
  EXPECT_EQ(result.exit_code, exit_code) << flags << "\n" << result.output;
  EXPECT_NE(result.output.find(part), std::string::npos) << flags << "\n" << result.output;
  EXPECT_EQ(std::ranges::count(result.output, '\n'), 1) << flags << "\n" << result.output;
}

TEST(Doctor, SaysWhetherThereIsAProfile) {
  const CommandResult result = run_command(kDoctor);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("profile "), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("zeno doctor --measure"), std::string::npos) << result.output;
}

TEST(Doctor, WhatCannotBeMeasuredIsOneLine) {
  const TempDir folder;
  const std::string out = " --out " + (folder.path() / "machine.json").string();
  expect_one_line("--measure --device tpu", 2, "tpu");
  expect_one_line("--measure /no/such/folder" + out, 2, "/no/such/folder");
  expect_one_line("--measure /proc" + out, 5, "free");  // which has no room at all
  expect_one_line("--measure --between-rate -1" + out, 2, "between-rate");
  expect_one_line("--out file", 2, "--measure");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "machine.json"));
}

TEST(Doctor, MeasuresAndStores) {
  if (!ZENO_FULL_TESTS) GTEST_SKIP() << "takes half a minute: make test-full";
  const TempDir folder;
  const Path file = folder.path() / "new" / "machine.json";
  const CommandResult result = run_command(kDoctor + "--measure --device cpu --between-rate 12.5 --out " +
                                           file.string() + " " + folder.path().string());
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (const char* word : {"GFLOP/s", "AdamW", "disk, read", "between ranks"})
    EXPECT_NE(result.output.find(word), std::string::npos) << word << "\n" << result.output;
  EXPECT_EQ(plan::find_machine(file.string()).between.rate, 12.5e9);
}

}  // namespace
}  // namespace zeno::test
