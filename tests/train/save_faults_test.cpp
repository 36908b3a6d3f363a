// A save whose every system call may fail: training goes on, what was saved before is whole, the next save
// works, and whatever is on the disk then is gone on from with the same bits.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "tests/support/faulty_files.h"
#include "tests/support/small_run.h"
#include "zeno/base/rng.h"
#include "zeno/checkpoint/checkpoint.h"

namespace zeno::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::find_damage;
using Clock = std::chrono::steady_clock;

constexpr const char* kFaultFlags =
    "--ranks 2 --stage 3 --micro-batch 1 --steps 6 --save-every 2 --keep-last 0 ";

struct Kind {
  const char* name;
  FaultyFiles::Fault fault;
};
const std::vector<Kind> kKinds = {
    {"open full", {.call = FileCall::open, .error = ENOSPC}},
    {"open broken", {.call = FileCall::open, .error = EIO}},
    {"write full", {.call = FileCall::pwrite, .error = ENOSPC}},
    {"write broken", {.call = FileCall::pwrite, .error = EIO}},
    {"write cut short", {.call = FileCall::pwrite}},
    {"write of nothing", {.call = FileCall::pwrite, .nothing = true}},
    {"sync full", {.call = FileCall::fsync, .error = ENOSPC}},
    {"sync broken", {.call = FileCall::fsync, .error = EIO}},
    {"rename full", {.call = FileCall::rename, .error = ENOSPC}},
    {"rename broken", {.call = FileCall::rename, .error = EIO}},
};

class SaveFaults : public testing::Test {
 protected:
  void SetUp() override {
    runs_.train("whole", kFaultFlags);
    expected_ = runs_.outcome("whole");
  }
  // Goes on from what is on the disk; the end must be that of the run that never failed.
  void expect_goes_on(const std::string& what) {
    runs_.train("out", std::string(kFaultFlags) + "--resume auto");
    EXPECT_EQ(runs_.outcome("out"), expected_) << what;
  }
  // False: a save makes fewer calls.
  bool fail_second_save(const Kind& kind, int64_t at) {
    const std::string what = fmt::format("{} {}", kind.name, at);
    fs::remove_all(runs_.path("out"));
    FaultyFiles::Fault fault = kind.fault;
    fault.at = at;
    FaultyFiles files("step-00000004", fault);
    const auto begin = Clock::now();
    {
      const FileSystemOverride use(files);
      runs_.train("out", kFaultFlags);
    }
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30)) << what;
    EXPECT_EQ(runs_.outcome("out"), expected_) << what;
    if (!files.fired()) return false;
    const bool harmless = fault.error == 0 && !fault.nothing;
    for (const Path& path : checkpoint::list_checkpoints(runs_.path("out/checkpoints")))
      EXPECT_EQ(find_damage(path), std::vector<std::string>{}) << what;
    const auto saved = [&](int64_t step) {
      return fs::exists(runs_.checkpoint("out", step) / "manifest.json");
    };
    EXPECT_TRUE(saved(2) && saved(6)) << what;
    EXPECT_TRUE(saved(4) || !harmless) << what;
    EXPECT_TRUE(saved(4) || !fs::exists(runs_.checkpoint("out", 4)))
        << what << ": leaves files that fill the disk";
    fs::remove_all(runs_.checkpoint("out", 6));
    expect_goes_on(what);
    return true;
  }

  SmallRuns runs_;
  std::vector<std::string> expected_;
};

TEST_F(SaveFaults, EveryCallOfASaveMayFail) {
  FaultyFiles counting("step-00000004");
  {
    const FileSystemOverride use(counting);
    runs_.train("counted", kFaultFlags);
  }
  for (size_t i = 0; i < kKinds.size(); ++i) {
    const int64_t calls = counting.count(kKinds[i].fault.call);
    ASSERT_GT(calls, 4);
    // All of them, or one of each kind: early in a rank's file, or among the last, where the manifest is.
    if (ZENO_FULL_TESTS) {
      for (int64_t at = 0; fail_second_save(kKinds[i], at); ++at) ASSERT_LT(at, 2 * calls);
    } else {
      EXPECT_TRUE(fail_second_save(kKinds[i], i % 2 == 0 ? int64_t(i) % 4 : calls - 1 - int64_t(i) % 3));
    }
  }
}

// From some write on the disk is full for good: the run ends with that reason or ends well, and goes on once
// there is room again.
TEST_F(SaveFaults, ADiskThatStaysFullLosesNothing) {
  FaultyFiles counting("/out/");
  {
    const FileSystemOverride use(counting);
    runs_.train("out", kFaultFlags);
  }
  const int64_t calls = counting.count(FileCall::pwrite);
  for (int64_t at = 1; at < calls; at += ZENO_FULL_TESTS ? 1 : calls / 3) {
    fs::remove_all(runs_.path("out"));
    FaultyFiles files("/out/", {.call = FileCall::pwrite, .at = at, .error = ENOSPC, .forever = true});
    const auto begin = Clock::now();
    try {
      const FileSystemOverride use(files);
      runs_.train("out", kFaultFlags);
    } catch (const Error& error) {
      EXPECT_EQ(int(error.kind()), int(ErrorKind::io)) << error.what();
      EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos) << error.what();
    }
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30)) << at;
    expect_goes_on(fmt::format("full from write {} of {}", at, calls));
  }
}

// The best model is saved in the middle of a run: a disk that is full then is no reason to end it.
TEST_F(SaveFaults, TrainingGoesOnWhenTheBestModelCannotBeSaved) {
  runs_.dir().write("text.txt", std::string(5000, 'e'));
  const std::string text = runs_.path("text.txt");
  const std::string flags =
      std::string(kFaultFlags) + "--data " + text + " --eval-data " + text + " --eval-every 2 --keep-best ";
  const report::RunSummary good = runs_.train("good", flags);
  ASSERT_EQ(good.saved_step, 6);  // every evaluation is better than the one before
  for (const FileCall call : {FileCall::open, FileCall::pwrite, FileCall::rename}) {
    fs::remove_all(runs_.path("out"));
    FaultyFiles files("/out/model.safetensors", {.call = call, .at = 0, .error = ENOSPC});
    report::RunSummary summary;
    {
      const FileSystemOverride use(files);
      summary = runs_.train("out", flags);
    }
    EXPECT_TRUE(files.fired());
    EXPECT_EQ(summary.saved_step, 6);
    EXPECT_EQ(runs_.outcome("out"), runs_.outcome("good"));
  }
  // The last of them fails: what was the best before stays, and the run says which it is.
  fs::remove_all(runs_.path("out"));
  FaultyFiles files("/out/model.safetensors", {.call = FileCall::rename, .at = 2, .error = ENOSPC});
  const FileSystemOverride use(files);
  EXPECT_EQ(runs_.train("out", flags).saved_step, 4);
}

// What makes a checkpoint survive a power cut: every file is synced before it gets its name, and the manifest
// gets its name after the names of all other files are synced.
TEST_F(SaveFaults, NothingGetsItsNameBeforeItIsOnTheDisk) {
  FaultyFiles files("step-00000004");
  {
    const FileSystemOverride use(files);
    runs_.train("out", kFaultFlags);
  }
  std::map<std::string, bool> synced;  // by path; a folder's own entry: its names
  int renames = 0;
  for (const auto& [call, path, to] : files.calls()) {
    if (call == FileCall::pwrite) synced[path] = false;
    if (call == FileCall::fsync) synced[path] = true;
    if (call != FileCall::rename) continue;
    ++renames;
    EXPECT_TRUE(synced[path]) << to;
    const std::string folder = Path(to).parent_path().string();
    if (Path(to).filename() == "manifest.json") {
      EXPECT_TRUE(synced[folder]);
    }
    synced[folder] = false;
  }
  EXPECT_EQ(renames, 2 * 2 + 1) << "two files and notes, and the manifest";
}

// One damaged bit, a cut or a missing file of the newest checkpoint: --resume auto takes the one before, and
// naming the damaged one is an error.
TEST_F(SaveFaults, DamageIsNeverResumedFrom) {
  runs_.train("part", kFaultFlags);
  fs::remove_all(runs_.checkpoint("part", 6));
  const Path newest = runs_.checkpoint("out", 4);
  int turn = 0;
  for (const std::string& name : list_folder(runs_.checkpoint("part", 4))) {
    for (int i = 0; i < (ZENO_FULL_TESTS ? 40 : 3); ++i, ++turn) {
      runs_.copy("part", "out");
      const uint64_t size = fs::file_size(newest / name);
      const uint64_t at = random_bits(5, 1, uint64_t(turn)) % size;
      const std::string what = fmt::format("{} byte {} of {}", name, at, size);
      if (i == 0) {
        fs::remove(newest / name);
      } else if (i == 1) {
        fs::resize_file(newest / name, at);
      } else {
        std::fstream file(newest / name, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(std::streamoff(at));
        const char byte = char(file.get() ^ (1 << (turn % 8)));
        file.seekp(std::streamoff(at));
        file.put(byte);
      }
      EXPECT_THROW(runs_.train("other", std::string(kFaultFlags) + "--resume " + newest.string()), Error)
          << what;
      expect_goes_on(what);
    }
  }
}

}  // namespace
}  // namespace zeno::test
