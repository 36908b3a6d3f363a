// States on disk become part of a checkpoint without being written again: their file is moved there and
// training goes on in another. Whatever fails on the way, training ends with the same bits, every checkpoint
// is whole or not there, and one that is given away is never written to again.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "tests/support/engine_run.h"
#include "tests/support/faulty_files.h"
#include "tests/support/homes.h"
#include "tests/support/temp_dir.h"
#include "zeno/base/rng.h"
#include "zeno/checkpoint/state_file.h"
#include "zeno/train/saving/checkpoint_state.h"

namespace zeno::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::Checkpoint;

constexpr int kGivingSteps = 4;

ino_t inode(const Path& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

class OffloadGiving : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::error);
    spec_.world = ranks();
    zero::apply_stage(spec_.policy, 3);
    spec_.policy.compute = DType::bf16;
    Homes{Tier::disk, Tier::disk, false}.set(spec_, disk_.path());
    // With one rank everything is on disk, with two a part stays in memory.
    if (ranks() == 1) spec_.policy.offload.host_states = 0;
  }
  void TearDown() override { set_log_level(LogLevel::info); }

  int ranks() const { return GetParam(); }
  Path saved(int step) const { return folder_.path() / checkpoint::checkpoint_name(step); }
  Path swap(int step, int rank = 0) const { return saved(step) / checkpoint::swap_file_name(rank, ranks()); }

  struct Result {
    std::vector<double> losses;
    uint64_t hash = 0;
    std::vector<std::string> problems;  // of saves, by step
  };
  // All steps, saved after each when `saves`, on from the checkpoint of step `first`.
  Result run(bool saves, int first = 0) {
    Result result;
    comm::run_thread_ranks(ranks(), {.deadline = std::chrono::seconds(20)}, [&](comm::World& world) {
      zero::Engine engine = make_engine(spec_, world);
      first > 0 ? train::restore(Checkpoint::open(saved(first)), engine) : engine.load(init_values);
      Result mine;
      for (int step = first; step < kGivingSteps; ++step) {
        mine.losses.push_back(train_steps(spec_, engine, world, step, step + 1).front());
        const ino_t before = inode(disk_.path() / (step % 2 == 0 ? "zeno-rank0.swap" : "zeno-rank0b.swap"));
        if (saves) mine.problems.push_back(save(folder_.path(), step + 1, engine, world));
        if (saves && world.rank() == 0 && inodes_) {
          EXPECT_EQ(inode(swap(step + 1)), before) << "step " << step;
        }
      }
      mine.hash = engine.weights_hash();
      if (world.rank() == 0) result = mine;
    });
    EXPECT_TRUE(fs::is_empty(disk_.path())) << "a swap file is left";
    return result;
  }

  TempDir disk_{memory_folder()}, folder_{memory_folder()};
  RunSpec spec_;
  bool inodes_ = false;
};
INSTANTIATE_TEST_SUITE_P(Ranks, OffloadGiving, testing::Values(1, 2));

TEST_P(OffloadGiving, TheFileItselfIsTheCheckpoint) {
  const Result plain = run(false);
  inodes_ = true;
  FaultyFiles files("-swap.safetensors");
  {
    const FileSystemOverride use(files);
    const Result result = run(true);
    EXPECT_EQ(result.problems, std::vector<std::string>(kGivingSteps));
    EXPECT_EQ(result.losses, plain.losses);
    EXPECT_EQ(result.hash, plain.hash);
  }
  EXPECT_EQ(files.count(FileCall::pwrite), kGivingSteps * ranks()) << "headers, and nothing else";
  for (int step = 1; step <= kGivingSteps; ++step) {
    EXPECT_EQ(checkpoint::find_damage(saved(step)), std::vector<std::string>()) << "step " << step;
    EXPECT_EQ(file_exists(saved(step) / checkpoint::state_file_name(0, ranks())), ranks() == 2);
  }
  const Result rest = run(false, 2);
  EXPECT_EQ(rest.losses, std::vector(plain.losses.begin() + 2, plain.losses.end()));
  EXPECT_EQ(rest.hash, plain.hash);
}

// No bit of such a file is without a meaning either.
TEST_P(OffloadGiving, AFlippedBitIsFound) {
  run(true);
  const auto bytes = uint64_t(fs::file_size(swap(2)));
  for (uint64_t i = 0; i < (ZENO_FULL_TESTS ? 1000u : 60u); ++i) {
    // In the header, and anywhere.
    const uint64_t at = random_bits(9, 1, i) % (i % 4 == 0 ? std::min<uint64_t>(bytes, 9000) : bytes);
    const auto flip = [&] {
      std::fstream file(swap(2), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(std::streamoff(at));
      const char byte = char(file.get());
      file.seekp(std::streamoff(at));
      file.put(char(byte ^ (1 << i % 8)));
    };
    flip();
    EXPECT_FALSE(checkpoint::find_damage(saved(2)).empty()) << "byte " << at << " of " << bytes;
    flip();
  }
  EXPECT_TRUE(checkpoint::find_damage(saved(2)).empty());
}

// Every call on the old file, the new one and what becomes of them fails once.
TEST_P(OffloadGiving, ASaveThatFailsIsMissedAndNoMore) {
  const Result plain = run(false);
  for (const FileCall call : {FileCall::open, FileCall::pwrite, FileCall::fsync, FileCall::rename}) {
    for (const char* where : {"zeno-rank0b.swap", "zeno-rank0.swap", "-swap.safetensors"}) {
      for (int64_t at = 0; at < kGivingSteps; ++at) {
        // The first file is made before anything is saved, and writing states is no part of a save.
        const bool swap = where != std::string_view("-swap.safetensors");
        if (swap && call == FileCall::pwrite) continue;
        if (call == FileCall::open && where == std::string_view("zeno-rank0.swap") && at == 0) continue;
        const std::string what = fmt::format("call {} number {} on {}", int(call), at, where);
        fs::remove_all(folder_.path());
        make_folders(folder_.path());
        FaultyFiles files(where, {.call = call, .at = at, .error = ENOSPC});
        Result result;
        {
          const FileSystemOverride use(files);
          result = run(true);
        }
        EXPECT_EQ(result.losses, plain.losses) << what;
        EXPECT_EQ(result.hash, plain.hash) << what;
        int missed = 0;
        for (int step = 1; step <= kGivingSteps; ++step) {
          const std::string& problem = result.problems[size_t(step) - 1];
          missed += !problem.empty();
          EXPECT_EQ(file_exists(saved(step) / checkpoint::kManifestName), problem.empty()) << what;
          if (problem.empty()) {
            EXPECT_TRUE(checkpoint::find_damage(saved(step)).empty()) << what << ", step " << step;
          } else {
            EXPECT_NE(problem.find(std::strerror(ENOSPC)), std::string::npos) << what << ": " << problem;
          }
        }
        EXPECT_EQ(missed, files.fired()) << what;
      }
    }
  }
}

}  // namespace
}  // namespace zeno::test
