// Paths with line breaks, quotes, backslashes, tabs and letters of other scripts: a run saves, resumes, takes
// snapshots, evaluates and reports there as anywhere.
#include <gtest/gtest.h>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/cli_runs.h"
#include "tests/support/mpirun.h"
#include "zeno/base/file.h"

namespace zeno::test {
namespace {

namespace fs = std::filesystem;

const std::string kOdd = "a\nb \"c\" 'd' \\e\tf % {} $g \xc3\xa9\xe4\xb8\xad";

class OddPaths : public CliRuns {
 protected:
  static std::string quoted(const std::string& text) {
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
  }
  // `in`: the folder that the run, its data and its cache are in.
  std::string train(const fs::path& in, const std::string& more) const {
    return kZeno + " train --model " + quoted((in / "model").string()) + " --data " +
           quoted((in / "data.jsonl").string()) + " --cache " + quoted((in / "cache").string()) + " --out " +
           quoted((in / "out").string()) + " --device cpu --seq-len 16 --ranks 2 --micro-batch 1" +
           plain_flags(more) + " " + more;
  }
  std::string prepare(const std::string& name) const {
    const fs::path in = dir_.path() / name;
    fs::create_directories(in);
    fs::copy(path("model"), in / "model", fs::copy_options::recursive);
    std::string records;
    for (int i = 0; i < 64; ++i) records += "{\"text\":\"line " + std::to_string(i) + " of the data\"}\n";
    replace_file(in / "data.jsonl", records);
    return in.string();
  }
};

// Ranks as processes tell each other of the checkpoints too.
TEST_F(OddPaths, RanksOfALauncherResumeThere) {
  const fs::path in = prepare(kOdd);
  const std::string steps = "--steps 4 --save-every 2 --keep-last 0 --resume auto";
  std::string command = train(in, steps);
  command.replace(command.find("--ranks 2 "), 10, "");
  expect_ok(mpirun(2) + command);
  fs::remove_all(in / "out/checkpoints/step-00000004");
  const CommandResult again = expect_ok(mpirun(2) + command);
  EXPECT_NE(again.output.find("step 2 from"), std::string::npos) << again.output;
}

TEST_F(OddPaths, ARunResumesThere) {
  const fs::path plain = prepare("plain"), odd = prepare(kOdd);
  for (const fs::path& in : {plain, odd}) {
    const std::string memory = " --peer-snapshot 2 --peer-snapshot-dir " + quoted((in / "memory").string());
    const std::string most = "--save-every 2 --keep-last 0 --eval-split 0.2 --eval-every 2 " + memory;
    expect_ok(train(in, "--steps 6 " + most));
    fs::remove_all(in / "out/checkpoints/step-00000006");
    const CommandResult again = expect_ok(train(in, "--steps 6 --resume auto " + most));
    EXPECT_NE(again.output.find("step 4 from"), std::string::npos) << again.output;
    expect_ok(kZeno + " inspect " + quoted((in / "out/checkpoints/step-00000004").string()));
    expect_ok(train(in, "--steps 8 --max-restarts 1 --resume auto " + most));
    EXPECT_TRUE(fs::exists(in / "out/checkpoints/step-00000008/manifest.json"));
  }
  EXPECT_EQ(outcome(kOdd + "/out"), outcome("plain/out"));
}

}  // namespace
}  // namespace zeno::test
