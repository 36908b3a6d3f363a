// What a newer Zeno wrote ends a run with one line that names both versions, and stays as it was, byte by
// byte: checkpoints on the disk and in memory, caches and token files.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "tests/support/cli_runs.h"
#include "tests/support/sealed_manifest.h"
#include "zeno/base/file.h"
#include "zeno/data/token_file.h"

namespace zeno::test {
namespace {

namespace fs = std::filesystem;

class NewerVersion : public CliRuns {
 protected:
  std::string train(const std::string& out, const std::string& more) const {
    return train_on_cpu(out, "--seq-len 32 --ranks 2 --micro-batch 1 " + more);
  }
  // All files below a folder, with what is in them.
  static std::map<std::string, std::string> contents(const fs::path& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) files[entry.path().string()] = read_file(entry.path());
    }
    return files;
  }
  // Exit code 3 and one line that names both versions; nothing below `kept` has changed.
  void expect_refused(
      const std::string& command, const fs::path& kept,
      const std::string& versions = "version 2 was written by a newer Zeno; this one reads up to 1") const {
    const auto before = contents(kept);
    ASSERT_FALSE(before.empty());
    const CommandResult result = run_command(command);
    EXPECT_EQ(result.exit_code, 3) << command << "\n" << result.output;
    const size_t at = result.output.find(versions);
    EXPECT_NE(at, std::string::npos) << command << "\n" << result.output;
    EXPECT_EQ(result.output.find(versions, at + 1), std::string::npos) << "said twice\n" << result.output;
    EXPECT_TRUE(contents(kept) == before) << "changed by " << command;
  }
};

// Of this Zeno's manifest, the same with the next version and a right checksum.
void make_newer(const fs::path& manifest) {
  std::string text = read_file(manifest);
  const size_t at = text.find("\"version\":1,");
  ASSERT_NE(at, std::string::npos);
  text[at + 10] = '2';
  const size_t begin = std::string_view("{\"checksum\":\"0123456789abcdef\",").size();
  replace_file(manifest, sealed_manifest(text.substr(begin, text.size() - begin - 2)));  // without "}\n"
}

TEST_F(NewerVersion, ACheckpointIsNeitherPassedOverNorRemoved) {
  expect_ok(train("whole", "--steps 6 --save-every 2 --keep-last 0"));
  for (const int newer : {2, 4, 6}) {
    copy("whole", "out");
    const std::string folder = fmt::format("out/checkpoints/step-0000000{}", newer);
    make_newer(path(folder + "/manifest.json"));
    const std::string again = "--steps 8 --save-every 2 --resume ";
    expect_refused(train("out", again + "auto"), path("out/checkpoints"));
    if (newer != 6) continue;
    expect_refused(train("out", again + "auto --max-restarts 2"), path("out/checkpoints"));
    expect_refused(train("out", again + path(folder)), path("out/checkpoints"));
    expect_refused(kZeno + " inspect " + path(folder), path("out/checkpoints"));
    expect_refused(kZeno + " export " + path(folder) + " " + path("exported"), path("out/checkpoints"));
    // Also of a version that seals its manifest in another way.
    replace_file(path(folder + "/manifest.json"), R"({"new":[1,{}],"version":2,"sum":0})");
    expect_refused(train("out", again + "auto"), path("out/checkpoints"));
  }
}

TEST_F(NewerVersion, ADamagedVersionIsPassedOver) {
  expect_ok(train("out", "--steps 4 --save-every 2 --keep-last 0"));
  const fs::path manifest = path("out/checkpoints/step-00000004/manifest.json");
  std::string text = read_file(manifest);
  text[text.find("\"version\":1,") + 10] = '3';
  replace_file(manifest, text);
  const CommandResult result = run_command(train("out", "--steps 4 --save-every 2 --resume auto"));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("step-00000004"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("step-00000002"), std::string::npos) << result.output;
}

TEST_F(NewerVersion, ASnapshotInMemoryIsNeitherPassedOverNorRemoved) {
  const TempDir memory(memory_folder());
  const std::string snapshots =
      "--peer-snapshot 1 --peer-snapshot-dir " + memory.path().string() + " --resume auto";
  const std::string long_run = train("out", "--steps 100000 " + snapshots);
  // Killed as soon as there is one.
  run_command("(" + long_run + " & pid=$!; for i in $(seq 1200); do ls " + memory.path().string() +
              "/*/step-*/manifest.json && break; sleep 0.05; done; kill -9 $pid; wait $pid)");
  int found = 0;
  for (const auto& entry : fs::recursive_directory_iterator(memory.path())) {
    if (entry.path().filename() != "manifest.json") continue;
    make_newer(entry.path());
    ++found;
  }
  ASSERT_GT(found, 0);
  expect_refused(train("out", "--steps 6 " + snapshots), memory.path());
  // Nor by a run that begins anew.
  fs::remove_all(path("out"));
  expect_refused(train("out", "--steps 6 " + snapshots), memory.path());
}

TEST_F(NewerVersion, ACacheOrTokenFileIsNotReplaced) {
  std::string records;
  for (int i = 0; i < 200; ++i) records += fmt::format("{{\"text\":\"this is line {} of the data\"}}\n", i);
  dir_.write("data.jsonl", records);
  std::string command = train("out", "--steps 6 --cache " + path("cache"));
  command.replace(command.find("--data generated"), 16, "--data " + path("data.jsonl"));
  expect_ok(command);
  for (const auto& entry : fs::recursive_directory_iterator(path("cache"))) {
    if (entry.path().filename() != "manifest.json") continue;
    std::string text = read_file(entry.path());
    const size_t at = text.find("\"version\": 2");
    ASSERT_NE(at, std::string::npos);
    text[at + 11] = '3';
    replace_file(entry.path(), text);
  }
  expect_refused(command, path("cache"), "version 3 was written by a newer Zeno; this one reads up to 2");

  const fs::path tokens = dir_.path() / "data.zt";
  data::write_token_file(tokens, {.vocab_size = 300, .eos = {}}, std::vector<int32_t>(1000, 7));
  std::string bytes = read_file(tokens);
  bytes[8] = 2;
  replace_file(tokens, bytes);
  command.replace(command.find(path("data.jsonl")), path("data.jsonl").size(), tokens.string());
  expect_refused(command, tokens.parent_path() / "cache");
  expect_refused(command, tokens.parent_path() / "model");
  EXPECT_EQ(read_file(tokens), bytes);
}

}  // namespace
}  // namespace zeno::test
