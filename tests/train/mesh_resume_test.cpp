// A checkpoint of any mesh resumes on any other: it knows names and stretches of tensors, and nothing of
// ranks.
#include <gtest/gtest.h>

#include "tests/support/resume_matrix.h"
#include "tests/zero/mesh_runs.h"

namespace zeno::test {
namespace {

struct MeshSetting {
  int inner;
  zero::Placements placements;
};

RunSpec spec_of(const MeshSetting& setting, DType compute) {
  RunSpec spec;
  spec.world = 4;
  spec.inner = setting.inner;
  spec.policy.compute = compute;
  setting.placements.apply(spec.policy);
  return spec;
}

class MeshResume : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, MeshResume, testing::Values(DType::f32, DType::bf16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(MeshResume, FromAnyMeshToAnyOther) {
  std::vector<MeshSetting> settings;
  for (const int inner : {0, 1, 2}) {
    for (const zero::Placements& placements : zero::all_placements()) settings.push_back({inner, placements});
  }
  const RunPart whole = run_part(spec_of(settings.front(), GetParam()), {}, 0, kResumeSteps);
  const RunPart second{{whole.losses.begin() + kResumeSaved, whole.losses.end()}, whole.hash};
  for (size_t i = 0; i < settings.size(); ++i) {
    const TempDir folder(memory_folder());
    const RunSpec from = spec_of(settings[i], GetParam());
    EXPECT_EQ(run_part(from, folder.path(), 0, kResumeSteps), whole) << settings[i].placements.name;
    for (const size_t far : {7, 16}) {
      const MeshSetting& to = settings[(i * 5 + far) % settings.size()];
      EXPECT_EQ(run_part(spec_of(to, GetParam()), folder.path(), kResumeSaved, kResumeSteps), second)
          << settings[i].placements.name << " in groups of " << from.inner << " to " << to.placements.name
          << " in groups of " << to.inner;
    }
  }
}

// On another number of ranks the sums have another order, but what is read is the same.
TEST_P(MeshResume, OnOtherNumbersOfRanks) {
  const MeshSetting groups{2, zero::all_placements()[6]};
  const TempDir folder(memory_folder());
  const RunPart saved = run_part(spec_of(groups, GetParam()), folder.path(), 0, kResumeSaved);
  for (const auto& [world, inner] : {std::pair{1, 0}, {2, 1}, {6, 3}, {8, 4}}) {
    RunSpec spec = spec_of(groups, GetParam());
    spec.world = world;
    spec.inner = inner;
    EXPECT_EQ(run_part(spec, folder.path(), kResumeSaved, kResumeSaved).hash, saved.hash)
        << world << " ranks";
  }
}

// Pipelines give the bits of one stage, so a run may go from any number of stages to any other.
TEST_P(MeshResume, FromAnyNumberOfStagesToAnyOther) {
  const auto spec_of_stages = [&](int pipe, size_t placement, Family family) {
    RunSpec spec = spec_of({0, zero::all_placements()[placement]}, GetParam());
    spec.family = family;
    spec.world = 2 * pipe;
    spec.pipe = pipe;
    spec.policy.order = zero::Order::horizontal;
    spec.policy.reproducible = true;  // the same bits with tied embeddings too
    return spec;
  };
  for (const Family family : {Family::llama, Family::gpt2}) {
    const RunPart whole = run_part(spec_of_stages(1, 0, family), {}, 0, kResumeSteps);
    const RunPart second{{whole.losses.begin() + kResumeSaved, whole.losses.end()}, whole.hash};
    for (const auto& [from, to] : {std::pair{1, 2}, {2, 1}, {2, 4}, {4, 3}, {3, 2}}) {
      const TempDir folder(memory_folder());
      EXPECT_EQ(run_part(spec_of_stages(from, size_t(from), family), folder.path(), 0, kResumeSteps), whole);
      EXPECT_EQ(run_part(spec_of_stages(to, 3, family), folder.path(), kResumeSaved, kResumeSteps), second)
          << from << " stages to " << to;
    }
  }
}

// What ranks read does not depend on who shares sequences.
TEST_P(MeshResume, FromSharedSequencesToWholeOnes) {
  RunSpec shared = spec_of({0, zero::all_placements()[3]}, GetParam());
  shared.context = 2;
  const TempDir folder(memory_folder());
  const RunPart saved = run_part(shared, folder.path(), 0, kResumeSaved);
  for (const auto& [world, context] : {std::pair{1, 1}, {2, 2}, {4, 4}, {4, 1}}) {
    RunSpec spec = shared;
    spec.world = world;
    spec.context = context;
    EXPECT_EQ(run_part(spec, folder.path(), kResumeSaved, kResumeSaved).hash, saved.hash);
  }
}

}  // namespace
}  // namespace zeno::test
