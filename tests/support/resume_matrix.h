// Saved with states in one tier, gone on with them in another, also on other numbers of ranks and in other
// stages: the end has the bits of a run that never stopped and kept everything on the device.
#pragma once

#include <gtest/gtest.h>

#include "tests/support/engine_run.h"
#include "tests/support/homes.h"
#include "tests/support/temp_dir.h"
#include "zeno/base/rng.h"
#include "zeno/train/saving/checkpoint_state.h"

namespace zeno::test {

inline constexpr int kResumeSteps = 4, kResumeSaved = 2;

struct StateTypes {
  DType compute, states;
  std::optional<DType> moments = {};
};
inline const auto kStateTypes =
    testing::Values(StateTypes{DType::f32, DType::f32}, StateTypes{DType::bf16, DType::f32},
                    StateTypes{DType::bf16, DType::bf16}, StateTypes{DType::bf16, DType::f32, DType::u8});
inline std::string name_of_types(const testing::TestParamInfo<StateTypes>& info) {
  const StateTypes& types = info.param;
  return fmt::format("{}_states_{}{}", name_of(types.compute), name_of(types.states),
                     types.moments ? "_in_8_bits" : "");
}

struct ResumeSetting {
  int world, stage;
  Homes homes;

  std::string text() const { return fmt::format("{} ranks, stage {}, {}", world, stage, homes.text()); }
  RunSpec spec(const RunSpec& base, StateTypes types, const Path& disk) const {
    RunSpec spec = base;
    spec.world = world;
    zero::apply_stage(spec.policy, stage);
    spec.policy.compute = types.compute;
    spec.policy.states = types.states;
    spec.policy.moments = types.moments;
    spec.policy.micro_batches = 4 / world;
    spec.policy.reproducible = true;  // the same bits for 1, 2 and 4 ranks
    spec.policy.persist_below = 40;
    homes.set(spec, disk);
    return spec;
  }
};

inline std::vector<ResumeSetting> resume_settings(const std::vector<Homes>& places) {
  std::vector<ResumeSetting> settings;
  for (int world : {1, 2, 4}) {
    for (int stage : {0, 1, 2, 3}) {
      if (world == 1 && stage > 0) continue;  // nothing to shard
      for (const Homes& homes : places) {
        if (world == 1 || stage == 3 || homes.params == Tier::device)
          settings.push_back({world, stage, homes});
      }
    }
  }
  return settings;
}

struct RunPart {
  std::vector<double> losses;
  uint64_t hash = 0;
  bool operator==(const RunPart&) const = default;
};

// From the start, and saved on the way where there is a folder; or from the folder's checkpoint of step
// `first`.
inline RunPart run_part(const RunSpec& spec, const Path& folder, int first, int end) {
  RunPart part;
  comm::run_thread_ranks(spec.world, {.deadline = std::chrono::seconds(20)}, [&](comm::World& world) {
    zero::Engine engine = make_engine(spec, world);
    if (first == 0) {
      engine.load(init_values);
    } else {
      train::restore(checkpoint::Checkpoint::open(folder / checkpoint::checkpoint_name(first)), engine);
    }
    std::vector<double> losses;
    const auto go_on = [&](int to) {
      for (double loss : train_steps(spec, engine, world, first + int(losses.size()), to))
        losses.push_back(loss);
    };
    train::CheckpointSaver saver({.folder = folder, .retention = {.keep_last = 0}}, engine, world);
    if (first == 0 && !folder.empty()) {
      go_on(kResumeSaved);
      EXPECT_TRUE(saver.start(kResumeSaved, "{}"));
    }
    go_on(end);  // while it is written
    EXPECT_EQ(saver.finish(), "");
    const uint64_t hash = engine.weights_hash();
    if (world.rank() == 0) part = {losses, hash};
  });
  return part;
}

// Saves one of `every` settings and goes on from each in `pairs` others.
inline void expect_resume_in_any_tier(const RunSpec& base, StateTypes types,
                                      const std::vector<ResumeSetting>& settings, uint64_t every,
                                      uint64_t pairs) {
  const TempDir disk(memory_folder());
  uint64_t draws = 0;
  const auto draw = [&](uint64_t below) { return random_bits(6, uint64_t(types.states), draws++) % below; };
  const ResumeSetting plain{1, 0, {Tier::device, Tier::device, false}};
  const RunPart whole = run_part(plain.spec(base, types, disk.path()), {}, 0, kResumeSteps);
  const RunPart second{{whole.losses.begin() + kResumeSaved, whole.losses.end()}, whole.hash};
  for (const ResumeSetting& from : settings) {
    if (draw(every) > 0) continue;
    const TempDir folder(memory_folder());
    EXPECT_EQ(run_part(from.spec(base, types, disk.path()), folder.path(), 0, kResumeSteps), whole)
        << from.text();
    for (uint64_t pair = 0; pair < pairs; ++pair) {
      const ResumeSetting& to = settings[draw(settings.size())];
      EXPECT_EQ(run_part(to.spec(base, types, disk.path()), folder.path(), kResumeSaved, kResumeSteps),
                second)
          << from.text() << " to " << to.text();
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(disk.path())) << "swap files are left";
}

}  // namespace zeno::test
