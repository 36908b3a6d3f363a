// A disk that is full for a while under a run: a small file system of memory, in a mount namespace of its
// own.
#include <gtest/gtest.h>

#include "tests/support/cli_runs.h"

namespace zeno::test {
namespace {

class FullDisk : public CliRuns {
 protected:
  void SetUp() override {
    if (run_command("unshare -m mount -t tmpfs none " + dir_.path().string()).exit_code != 0)
      GTEST_SKIP() << "may not mount a file system in a namespace";
    CliRuns::SetUp();
  }
};

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_F(FullDisk, MetricsOfTheTimeAreWrittenWhenThereIsRoomAgain) {
  std::filesystem::create_directory(path("out"));
  const std::string script = path("full.sh"), out = path("out"), said = path("said");
  std::ofstream(script)
      << "mount -t tmpfs -o size=24m none " << out << " || exit\n"
      << train_on_cpu("out", " --seq-len 256 --micro-batch 1 --steps 1000000") << " >" << said << " 2>&1 &\n"
      << "P=$!\n"
      << "lines() { wc -l < " << out << "/metrics.jsonl 2>/dev/null || echo 0; }\n"
      << "waits() { for i in $(seq 1200); do [ $(lines) -gt $1 ] && return; sleep 0.05; done; }\n"
      << "waits 20\n"
      << "dd if=/dev/zero of=" << out << "/fill bs=64k 2>/dev/null\n"
      << "for i in $(seq 100); do echo >> " << out
      << "/fill || break; done 2>/dev/null\n"
      // Each file still has the rest of its last page.
      << "for i in $(seq 1200); do [ $(grep -c 'training continues' " << said
      << ") = 3 ] && break; sleep 0.05; done\n"
      << "N=$(lines); sleep 0.2; [ $(lines) = $N ] || echo the disk was not full\n"
      << "rm " << out << "/fill; waits $((N + 20))\n"
      << "kill -TERM $P; wait $P; echo ended with $?\n"
      << "cat " << said << "; cp " << out << "/metrics.* " << path("") << "\n";
  const CommandResult run = run_command("timeout 300 unshare -m sh " + script);
  EXPECT_EQ(count(run.output, "ended with 0"), 1u) << run.output;
  EXPECT_EQ(count(run.output, "the disk was not full"), 0u) << run.output;
  EXPECT_EQ(count(run.output,
                  "training continues; missing records are written as soon as the file is writable again"),
            3u)
      << run.output;
  EXPECT_EQ(count(run.output, "can be written again; no records were lost"), 3u) << run.output;
  int64_t steps = 0;
  std::ifstream lines(path("metrics.jsonl"));
  bool done = false;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(parsed.is_object()) << line;
    if (parsed.contains("loss")) {
      ASSERT_EQ(parsed.at("step"), ++steps);
    }
    done = parsed.value("event", "") == "done";
  }
  EXPECT_TRUE(done);
  std::ifstream rows(path("metrics.csv"));
  std::string row;
  std::getline(rows, row);
  for (int64_t step = 1; step <= steps; ++step) {
    std::getline(rows, row);
    ASSERT_EQ(row.substr(0, row.find(',')), std::to_string(step));
  }
  EXPECT_FALSE(std::getline(rows, row));
}

}  // namespace
}  // namespace zeno::test
