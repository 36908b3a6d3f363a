// Promise 1 on a mesh: however the ranks are arranged, and whatever is sharded over which axes, a run has the
// bits of the flat one. `make test` runs a sample, `make test-full` all.
#include <gtest/gtest.h>

#include <array>

#include "tests/support/expect_error.h"
#include "tests/support/full_tests.h"
#include "tests/support/temp_dir.h"
#include "tests/zero/mesh_runs.h"
#include "zeno/base/rng.h"

namespace zeno::zero {
namespace {

using comm::Axes;
using comm::kDataAxes;
using comm::kShardAxes;
using test::Family;
using test::kFull;
using test::run_threads;
using test::RunResult;
using test::RunSpec;

struct Shape {
  int outer, inner;
};
constexpr std::array kShapes{Shape{1, 4}, Shape{2, 2}, Shape{4, 1}, Shape{2, 4}, Shape{4, 2}};

class MeshBits : public testing::TestWithParam<Shape> {
 protected:
  RunSpec flat() const {
    RunSpec spec;
    spec.world = GetParam().outer * GetParam().inner;
    spec.steps = 2;
    return spec;
  }
  RunSpec on_mesh(RunSpec spec, const Placements& placements) const {
    spec.inner = GetParam().inner;
    placements.apply(spec.policy);
    return spec;
  }
  // One in `stride`, spread by a hash, unless all are to run.
  bool is_sampled(int stride) {
    return kFull ||
           random_bits(17, uint64_t(GetParam().outer * 8 + GetParam().inner), index_++) % uint64_t(stride) ==
               0;
  }
  void expect_bits(const RunSpec& spec, const RunResult& reference, const char* name) const {
    const RunResult result = run_threads(spec);
    EXPECT_EQ(result, reference) << name << ", bucket " << spec.policy.reduce_bucket;
    EXPECT_EQ(result.booked, result.peak) << name;
    const int64_t width = int64_t(size_of(spec.policy.compute));
    if (keeps_all(spec.policy.optimizer)) return;  // sums are gathered as well
    EXPECT_EQ(result.traffic.gathered,
              result.formula.gathered * width + int64_t(sizeof(StepSums)) * (spec.world - 1))
        << name;
  }
  // Is what is sharded over these axes whole on every rank of the mesh?
  bool keeps_all(Axes axes) const { return axes.empty() || (axes == kShardAxes && GetParam().inner == 1); }

 private:
  uint64_t index_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Shapes, MeshBits, testing::ValuesIn(kShapes), [](const auto& test) {
  return std::to_string(test.param.outer) + "x" + std::to_string(test.param.inner);
});

TEST_P(MeshBits, EveryPlacementHasTheBitsOfTheFlatRun) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Family family : {Family::gpt2, Family::llama}) {
      RunSpec base = flat();
      base.family = family;
      base.policy.compute = dtype;
      const RunResult reference = run_threads(base);
      for (const Placements& placements : all_placements()) {
        for (const int64_t bucket : {int64_t(500), int64_t(6000), int64_t(1) << 40}) {
          for (const nn::Recompute recompute : {nn::Recompute::none, nn::Recompute::full}) {
            if (!is_sampled(12)) continue;
            RunSpec spec = on_mesh(base, placements);
            spec.policy.reduce_bucket = spec.policy.gather_bucket = bucket;
            spec.policy.recompute = recompute;
            spec.policy.prefetch = bucket;
            expect_bits(spec, reference, placements.name);
          }
        }
      }
    }
  }
}

TEST_P(MeshBits, MicroBatchesInVerticalOrder) {
  RunSpec base = flat();
  base.policy.micro_batches = 3;
  base.policy.order = Order::vertical;
  const RunResult reference = run_threads(base);
  for (const Placements& placements : all_placements()) {
    if (is_sampled(3)) expect_bits(on_mesh(base, placements), reference, placements.name);
  }
}

// Gradients that are sharded over all ranks are reduced whole for every micro-batch, as in flat runs.
TEST_P(MeshBits, MicroBatchesInHorizontalOrder) {
  RunSpec base = flat();
  base.policy.micro_batches = 3;
  const RunResult replicated = run_threads(base);
  apply_stage(base.policy, 2);
  const RunResult sharded = run_threads(base);
  for (const Placements& placements : all_placements()) {
    const bool in_groups = placements.grads == kShardAxes && GetParam().outer > 1 && GetParam().inner > 1;
    if (in_groups || !is_sampled(2)) continue;
    expect_bits(on_mesh(base, placements), keeps_all(placements.grads) ? replicated : sharded,
                placements.name);
  }
}

// Sums leave their ranks in bf16 and are added in fp32, in one level or two.
TEST_P(MeshBits, GradientsOnTheWireInBf16) {
  RunSpec base = flat();
  base.policy.wire = DType::bf16;
  const RunResult all_reduced = run_threads(base);
  apply_stage(base.policy, 2);
  const RunResult scattered = run_threads(base);
  for (const Placements& placements : all_placements()) {
    if (!is_sampled(2)) continue;
    expect_bits(on_mesh(base, placements), keeps_all(placements.optimizer) ? all_reduced : scattered,
                placements.name);
  }
}

TEST_P(MeshBits, StatesOnTheHostOrOnDisk) {
  const test::TempDir folder;
  const RunResult reference = run_threads(flat());
  for (const Placements& placements : all_placements()) {
    for (const Tier tier : {Tier::host, Tier::disk}) {
      if (!is_sampled(4)) continue;
      RunSpec spec = on_mesh(flat(), placements);
      spec.policy.offload.optimizer = tier;
      spec.policy.offload.far_host = tier == Tier::host;
      spec.policy.offload.chunk = 1000;
      spec.disk.folders = {folder.path()};
      expect_bits(spec, reference, placements.name);
    }
  }
}

TEST_P(MeshBits, ReproducibleRuns) {
  RunSpec base = flat();
  base.policy.reproducible = true;
  base.policy.micro_batches = 2;
  const RunResult reference = run_threads(base);
  for (const Placements& placements : all_placements()) {
    if (placements.optimizer != kShardAxes && is_sampled(2))
      expect_bits(on_mesh(base, placements), reference, placements.name);
  }
}

// What goes from host to host is what a ring of hosts would send: each byte of a gather or a sum once.
TEST(MeshTraffic, EveryByteLeavesItsHostOnce) {
  for (const Placements& placements : all_placements()) {
    RunSpec spec;
    spec.world = 8;
    spec.inner = 4;
    placements.apply(spec.policy);
    const CompiledStep step = compile_step(test::model_of(spec), test::options_of(spec));
    int64_t whole = 0, gathered = 0, reduced = 0;  // by all ranks of a host, from other hosts
    for (const Group& group : step.units.groups) whole += group.padded();
    for (const Instruction& in : step.program.instructions) {
      const auto use = comm_use_of(in);
      if (!use || !use->over.has(comm::Axis::outer) || in.is<Norm>()) continue;
      ASSERT_EQ(use->over, Axes{comm::Axis::outer}) << describe(in, step.units);
      const ProgramTraffic traffic = traffic_of({.instructions = {in}}, step.units, step.mesh);
      gathered += 4 * traffic.gathered;
      reduced += 4 * traffic.reduced;
    }
    const bool across = placements.optimizer.has(comm::Axis::outer);
    EXPECT_EQ(reduced, (across ? 1 : 2) * whole / 2) << placements.name;  // a shard of the sum, or all of it
    // Parameters that are sharded over all ranks are gathered for forward and backward: as often as in the
    // flat run.
    int64_t expected = across ? whole / 2 : 0;
    if (placements.params.has(comm::Axis::outer)) {
      spec.inner = 0;
      const CompiledStep flat = compile_step(test::model_of(spec), test::options_of(spec));
      expected = traffic_of(flat.program, flat.units, flat.mesh).gathered * 8 / 7 / 2;
    }
    EXPECT_EQ(gathered, expected) << placements.name;
  }
}

TEST(MeshPolicy, RefusesWhatCannotBe) {
  RunSpec spec;
  spec.world = 4;
  spec.inner = 3;
  test::expect_error(ErrorKind::usage, {"4 ranks in groups of 3"},
                     [&] { compile_step(test::model_of(spec), test::options_of(spec)); });
  spec.inner = 2;
  spec.policy.params = kDataAxes;
  spec.policy.grads = spec.policy.optimizer = kShardAxes;
  test::expect_error(ErrorKind::usage, {"parameters are sharded over outer and inner"},
                     [&] { compile_step(test::model_of(spec), test::options_of(spec)); });
}

}  // namespace
}  // namespace zeno::zero
