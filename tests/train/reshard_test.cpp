// Any shape to any shape: what four ranks of stage 3 have saved is loaded by other numbers of ranks in other
// stages, to the last bit, each rank reading no more than the extents that hold its part.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/engine_run.h"
#include "tests/support/expect_error.h"
#include "tests/support/homes.h"
#include "tests/support/small_run.h"
#include "zeno/kernels/master_rest.h"
#include "zeno/train/saving/checkpoint_state.h"

namespace zeno::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::Checkpoint;
using zero::State;

RunSpec spec_of(Family family, int world, int stage, DType compute, DType states) {
  RunSpec spec;
  spec.family = family;
  spec.world = world;
  spec.shape = {.hidden = 128, .vocab = 500};
  zero::apply_stage(spec.policy, stage);
  spec.policy.compute = compute;
  spec.policy.states = states;
  spec.policy.micro_batches = 12 / world / int(spec.batch.batch);
  return spec;
}

std::vector<float> values_of(const Checkpoint& from, const std::string& state,
                             const checkpoint::StateTensor& tensor) {
  std::vector<float> values(size_t(tensor.count()));
  from.read(state, tensor.name, 0, values);
  return values;
}

// Bits, so that a NaN equals itself and -0 differs from 0.
void expect_same_bits(const std::vector<float>& got, const std::vector<float>& expected,
                      const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0) << what;
}

// Counts what is read of the data of rank files, headers left out.
class CountingFiles final : public FileSystem {
 public:
  int open(const char* path, int flags, mode_t mode) override {
    const int fd = FileSystem::open(path, flags, mode);
    const std::scoped_lock lock(mutex_);
    const bool swap = std::string_view(path).ends_with(".swap");  // states on disk are not what is counted
    swap ? void(swaps_.insert(fd)) : void(swaps_.erase(fd));
    return fd;
  }
  ssize_t pread(int fd, void* data, size_t bytes, off_t offset) override {
    const ssize_t got = FileSystem::pread(fd, data, bytes, offset);
    const std::scoped_lock lock(mutex_);
    if (offset > 8 && got > 0 && !swaps_.contains(fd))
      total_ += size_t(got), largest_ = std::max(largest_, size_t(got));
    return got;
  }
  size_t total() const { return total_; }
  size_t largest() const { return largest_; }

 private:
  std::mutex mutex_;
  std::set<int> swaps_;
  size_t total_ = 0, largest_ = 0;
};

void expect_loads(const RunSpec& spec, const Path& folder, const std::string& what) {
  const Checkpoint saved = Checkpoint::open(folder / checkpoint::checkpoint_name(3));
  CountingFiles files;
  size_t total = 0;
  for (const auto& tensor : saved.manifest().tensors)
    for (const auto& state : saved.manifest().states) total += size_t(tensor.count()) * size_of(state.dtype);
  std::optional<FileSystemOverride> use(files);
  comm::run_thread_ranks(spec.world, {.deadline = std::chrono::seconds(20)}, [&](comm::World& world) {
    zero::Engine engine = make_engine(spec, world);
    train::restore(Checkpoint::open(saved.folder()), engine);
    for (Tier tier : kTiers) EXPECT_LE(engine.ledger().peak(tier), engine.ledger().booked(tier)) << what;
    // Where state is shared no rank reads all of it, although whole extents and whole pages are read.
    world.exchange("");
    const bool shares = spec.world > 1 && !spec.policy.optimizer.empty();
    EXPECT_LT(double(files.total()), double(total) * spec.world * (shares ? 0.75 : 1.3)) << what;
    EXPECT_LE(files.largest(), (size_t(1) << 20) + 2 * kDirectAlign) << "more than a slice at once";
    world.exchange("");
    const std::pair<State, std::string> states[] = {{State::master, "master"},
                                                    {State::first_moment, "first_moment"},
                                                    {State::second_moment, "second_moment"}};
    for (int p = 0; p < int(engine.units().params.size()); ++p) {
      const nn::Parameter& param = engine.units().params[size_t(p)];
      for (const auto& [state, name] : states) {
        std::vector<float> got(size_t(param.count()));
        engine.read(state, p, 0, got);
        expect_same_bits(got, values_of(saved, name, *saved.find(param.name)), what + " " + param.name);
      }
    }
    EXPECT_EQ(save(folder, 100 + spec.world, engine, world), "") << what;
  });
  use.reset();
  const Checkpoint again = Checkpoint::open(folder / checkpoint::checkpoint_name(100 + spec.world));
  for (const auto& tensor : saved.manifest().tensors) {
    for (const auto& state : saved.manifest().states)
      expect_same_bits(values_of(again, state.name, tensor), values_of(saved, state.name, tensor),
                       what + " saved again " + tensor.name);
  }
}

TEST(Reshard, StateIsTheSameBitsInEveryShape) {
  struct Types {
    DType compute, states;
  };
  int turn = 0;  // of the tiers that states are read into and saved again from
  for (const auto& [compute, states] :
       {Types{DType::f32, DType::f32}, Types{DType::bf16, DType::f32}, Types{DType::bf16, DType::bf16}}) {
    for (Family family : {Family::gpt2, Family::llama, Family::qwen3}) {
      // In `make test` a family for each pair of types.
      if (!ZENO_FULL_TESTS && int(family) != int(compute == DType::bf16) + int(states == DType::bf16))
        continue;
      const TempDir dir(memory_folder()), disk(memory_folder());
      const RunSpec writer = spec_of(family, 4, 3, compute, states);
      comm::run_thread_ranks(4, {.deadline = std::chrono::seconds(20)}, [&](comm::World& world) {
        zero::Engine engine = make_engine(writer, world);
        engine.load(init_values);
        train_steps(writer, engine, world, 0, 3);
        EXPECT_EQ(save(dir.path(), 3, engine, world), "");
      });
      for (int world : {1, 2, 3, 6}) {
        for (int stage = 0; stage < 4; ++stage) {
          if (!ZENO_FULL_TESTS && (world + stage) % 3 != int(family)) continue;
          RunSpec reader = spec_of(family, world, stage, compute, states);
          const Homes homes = all_homes()[size_t(turn++) * 7 % all_homes().size()];
          homes.set(reader, disk.path());
          expect_loads(reader, dir.path(),
                       fmt::format("{} {} family {} world {} stage {} {}", name_of(compute), name_of(states),
                                   int(family), world, stage, homes.text()));
        }
      }
    }
  }
}

// A run of fp32 states goes on with bf16 ones and the other way round: values are converted, nothing else.
TEST(Reshard, StatesMayChangeTheirType) {
  const TempDir dir;
  const RunSpec writer = spec_of(Family::llama, 4, 3, DType::bf16, DType::f32);
  comm::run_thread_ranks(4, {.deadline = std::chrono::seconds(20)}, [&](comm::World& world) {
    zero::Engine engine = make_engine(writer, world);
    engine.load(init_values);
    train_steps(writer, engine, world, 0, 2);
    EXPECT_EQ(save(dir.path(), 3, engine, world), "");
  });
  const Checkpoint saved = Checkpoint::open(dir.path() / checkpoint::checkpoint_name(3));
  // Also where parameters are a second copy of masters, and where they are on disk.
  const TempDir disk(memory_folder());
  for (const Homes& homes : {Homes{Tier::device, Tier::device, false}, Homes{Tier::host, Tier::host, true},
                             Homes{Tier::disk, Tier::disk, false}}) {
    RunSpec reader = spec_of(Family::llama, 2, 3, DType::bf16, DType::bf16);
    homes.set(reader, disk.path());
    comm::run_thread_ranks(2, {.deadline = std::chrono::seconds(20)}, [&](comm::World& world) {
      zero::Engine engine = make_engine(reader, world);
      train::restore(saved, engine);
      for (int p = 0; p < int(engine.units().params.size()); ++p) {
        const nn::Parameter& param = engine.units().params[size_t(p)];
        std::vector<float> got(size_t(param.count())),
            expected = values_of(saved, "master", *saved.find(param.name));
        for (float& value : expected) value = float(copy_of_master<BF16>(value));
        for (State state : {State::master, State::param}) {
          engine.read(state, p, 0, got);
          expect_same_bits(got, expected, param.name + " " + homes.text());
        }
      }
    });
  }
}

// A cell of eight-bit moments cannot be filled in parts.
TEST(Reshard, MomentsInEightBitsComeInWholeCells) {
  RunSpec spec = spec_of(Family::llama, 1, 0, DType::f32, DType::f32);
  spec.policy.moments = DType::u8;
  const auto world = comm::make_self_world();
  zero::Engine engine = make_engine(spec, *world);
  engine.load_states([&](const zero::Engine::Loading& loading) {
    const zero::Engine::StateRun& run = loading.runs.at(1);
    ASSERT_EQ(int(run.state), int(State::first_moment));
    std::vector<float> values(128, 1.5f);
    loading.place(run, 64, {DType::f32, std::as_writable_bytes(std::span(values))});
    expect_error(ErrorKind::data, {engine.units().params[size_t(run.param)].name, "element 100", "64"}, [&] {
      loading.place(run, 100, {DType::f32, std::as_writable_bytes(std::span(values))});
    });
  });
  std::vector<float> got(256);
  engine.read(State::first_moment, 0, 0, got);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i >= 64 && i < 192 ? 1.5f : 0.0f) << i;
}

// Whole runs on other numbers of ranks: the global batch stays, and with it the losses; reproducible runs of
// 1, 2 and 4 ranks, where it is a power of two, end with the same bits.
TEST(Reshard, RunsGoOnOnOtherNumbersOfRanks) {
  const SmallRuns runs;
  for (const std::string dtype : {"fp32", "bf16"}) {
    const std::string common = "--reproducible --steps 6 --dtype " + dtype + " ";
    for (int batch : {8, 12}) {
      fs::remove_all(runs.path("part"));
      runs.train("part", fmt::format("{}--ranks 4 --stage 3 --micro-batch 1 --train-batch {} --save-every 3 "
                                     "--keep-last 0",
                                     common, batch));
      const std::vector<std::string> whole = runs.outcome("part");
      const double loss = nlohmann::json::parse(whole[5]).at("loss");
      fs::remove_all(runs.checkpoint("part", 6));
      for (int ranks : {1, 2, 3, 4, 6}) {
        if ((batch == 8) != (ranks == 1 || ranks == 2 || ranks == 4)) continue;
        for (int stage = 0; stage < 4; ++stage) {
          if (!ZENO_FULL_TESTS && stage != (ranks + (dtype == "bf16")) % 4) continue;
          runs.copy("part", "again");
          const report::RunSummary summary =
              runs.train("again", fmt::format("{}--resume auto --ranks {} --stage {}", common, ranks, stage));
          EXPECT_EQ(summary.steps, 6);
          EXPECT_NEAR(summary.loss, loss, 1e-3);
          if (batch == 8) {
            EXPECT_EQ(runs.outcome("again"), whole) << dtype << " ranks " << ranks << " stage " << stage;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace zeno::test
