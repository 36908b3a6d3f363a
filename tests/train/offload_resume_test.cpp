// Checkpoints of offloaded states: engines and whole runs that go on with their states in other tiers.
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/faulty_files.h"
#include "tests/support/resume_matrix.h"
#include "tests/support/small_run.h"

namespace zeno::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::Checkpoint;

constexpr uint64_t kPairs = ZENO_FULL_TESTS ? 4 : 1;  // goings on for each save

class OffloadResume : public testing::TestWithParam<StateTypes> {};

TEST_P(OffloadResume, FromAnyTierToAnyOther) {
  expect_resume_in_any_tier({}, GetParam(), resume_settings(all_homes()), ZENO_FULL_TESTS ? 1 : 15, kPairs);
}
INSTANTIATE_TEST_SUITE_P(Types, OffloadResume, kStateTypes, name_of_types);

// What was just loaded is saved as it is, also when it has not been written to the disk yet.
TEST(OffloadSave, RightAfterLoading) {
  const TempDir disk(memory_folder()), folder(memory_folder());
  const auto world = comm::make_self_world();
  RunSpec spec = ResumeSetting{1, 0, {Tier::device, Tier::device, false}}.spec({}, {DType::bf16, DType::f32},
                                                                               disk.path());
  zero::Engine plain = make_engine(spec, *world);
  plain.load(init_values);
  Homes{Tier::disk, Tier::disk, false}.set(spec, disk.path());
  spec.policy.offload.host_states = spec.policy.offload.host_params = 0;
  for (int64_t chunk : {int64_t(512), int64_t(1) << 20}) {
    spec.policy.offload.chunk = chunk;
    {
      zero::Engine engine = make_engine(spec, *world);
      engine.load(init_values);
      ASSERT_EQ(save(folder.path(), chunk, engine, *world), "");
    }
    zero::Engine engine = make_engine(spec, *world);
    train::restore(Checkpoint::open(folder.path() / checkpoint::checkpoint_name(chunk)), engine);
    EXPECT_EQ(engine.weights_hash(), plain.weights_hash()) << "chunks of " << chunk;
  }
}

// The same by the flags of `zeno train`.
class OffloadRuns : public testing::Test {
 protected:
  struct Flags {
    int ranks, stage;
    std::string optimizer, params;
    std::string text() const {
      return fmt::format("--ranks {} --stage {} --offload-optimizer {} --offload-param {} ", ranks, stage,
                         optimizer, params);
    }
  };
  // Small enough that a tiny model has many chunks and that not all of it stays near.
  OffloadRuns()
      : common_(fmt::format("--config {} --nvme-path {} --reproducible --micro-batch 1 --train-batch 4 "
                            "--steps {} ",
                            runs_.dir()
                                .write("ds.json", R"({"zero_optimization": {"sub_group_size": 1500,
                                   "stage3_param_persistence_threshold": 40,
                                   "offload_param": {"max_in_cpu": 4000}}})")
                                .string(),
                            runs_.path("disk"), kResumeSteps)) {
    std::filesystem::create_directory(runs_.path("disk"));
  }

  static std::vector<Flags> all_flags() {
    std::vector<Flags> all;
    for (int ranks : {1, 2, 4}) {
      for (int stage : {0, 1, 2, 3}) {
        for (const char* optimizer : {"none", "cpu", "nvme"}) {
          for (const char* params : {"none", "cpu", "nvme"}) {
            const bool fits = stage == 3 || (ranks == 1 ? stage == 0 : params == std::string("none"));
            if (fits) all.push_back({ranks, stage, optimizer, params});
          }
        }
      }
    }
    return all;
  }

  SmallRuns runs_;
  std::string common_;
};

TEST_F(OffloadRuns, GoOnWithOtherFlags) {
  const std::vector<Flags> all = all_flags();
  uint64_t draws = 0;
  const auto draw = [&](uint64_t below) { return random_bits(7, 1, draws++) % below; };
  for (const std::string dtype : {"--dtype fp32 ", "--dtype bf16 "}) {
    runs_.train("whole", common_ + dtype + "--ranks 2");
    const std::vector<std::string> whole = runs_.outcome("whole");
    for (const Flags& from : all) {
      if (!ZENO_FULL_TESTS && draw(30) > 0) continue;
      fs::remove_all(runs_.path("part"));
      runs_.train("part",
                  common_ + dtype + from.text() + fmt::format("--save-every {} --keep-last 0", kResumeSaved));
      EXPECT_EQ(runs_.outcome("part"), whole) << "never stopped: " << dtype << from.text();
      fs::remove_all(runs_.checkpoint("part", kResumeSteps));
      for (uint64_t pair = 0; pair < kPairs; ++pair) {
        const Flags& to = all[draw(all.size())];
        runs_.copy("part", "again");
        runs_.train("again", common_ + dtype + to.text() + "--resume auto");
        EXPECT_EQ(runs_.outcome("again"), whole) << dtype << from.text() << "to " << to.text();
      }
    }
  }
  EXPECT_TRUE(fs::is_empty(runs_.path("disk"))) << "swap files are left";
}

// Copies of the state in the memory of partners would need the room that states on disk are to spare.
TEST_F(OffloadRuns, SnapshotsInMemoryOfStatesOnDisk) {
  fs::create_directories(runs_.path("memory"));
  expect_error(ErrorKind::usage, {"--peer-snapshot", "--save-every"}, [&] {
    runs_.train("out", common_ + Flags{2, 3, "nvme", "nvme"}.text() +
                           "--peer-snapshot 1 --peer-snapshot-dir " + runs_.path("memory"));
  });
}

// The file that is to hold the states cannot be made: nothing has begun, and the folder is as it was.
TEST_F(OffloadRuns, ASwapFileThatCannotBeOpened) {
  const std::string flags = common_ + Flags{2, 2, "nvme", "none"}.text();
  for (const int error : {ENOSPC, EIO, EACCES, EMFILE}) {
    for (const int64_t at : {0, 1}) {
      FaultyFiles files(".swap", {.call = FileCall::open, .at = at, .error = error});
      const FileSystemOverride use(files);
      expect_error(ErrorKind::io, {".swap", std::strerror(error)}, [&] { runs_.train("out", flags); });
      EXPECT_TRUE(files.fired());
      EXPECT_TRUE(fs::is_empty(runs_.path("disk")));
      EXPECT_EQ(runs_.outcome("out").size(), 0u);
    }
  }
}

}  // namespace
}  // namespace zeno::test
