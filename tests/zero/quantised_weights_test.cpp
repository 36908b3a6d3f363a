// Weights that are gathered in eight bits: every mesh, bucket and order gives the bits of one another,
// forward and backward see what the cells decode to, masters and checkpoints stay exact, and the wire carries
// about a quarter of fp32's bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>

#include "tests/support/expect_error.h"
#include "tests/zero/mesh_runs.h"
#include "zeno/kernels/wire_cells.h"
#include "zeno/zero/program/program_check.h"

namespace zeno::zero {
namespace {

using test::Family;
using test::run_threads;
using test::RunResult;
using test::RunSpec;

RunSpec quantised(DType compute = DType::f32) {
  RunSpec spec;
  spec.world = 4;
  spec.steps = 2;
  spec.policy.compute = compute;
  spec.policy.int8_weights = true;
  apply_stage(spec.policy, 3);
  return spec;
}

// The starting values as they would come from a folder whose weights went through the cells.
void rounded_values(const nn::Parameter& param, int64_t begin, std::span<float> out) {
  std::vector<float> values(size_t(round_up(param.count(), kWireCell)));
  test::init_values(param, 0, std::span(values).first(size_t(param.count())));
  std::vector<std::byte> cells(wire_bytes(WireCode::int8, int64_t(values.size())));
  const Tensor all{reinterpret_cast<std::byte*>(values.data()), DType::f32, 1, int64_t(values.size())};
  const Stream stream({.name = "round"});
  wire_encode(stream, WireCode::int8, all, cells.data());
  wire_decode(stream, WireCode::int8, cells.data(), all);
  stream.synchronize();
  std::copy_n(values.begin() + begin, out.size(), out.begin());
}

TEST(QuantisedWeights, TheFirstStepIsThatOfWeightsRoundedBefore) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    RunSpec spec = quantised();
    spec.family = family;
    spec.steps = 1;
    const RunResult coded = run_threads(spec);
    spec.policy.int8_weights = false;
    EXPECT_NE(run_threads(spec).losses, coded.losses);
    spec.values = rounded_values;
    const RunResult rounded = run_threads(spec);
    EXPECT_EQ(rounded.losses, coded.losses);
    EXPECT_EQ(rounded.norms, coded.norms);
    EXPECT_NE(rounded.hash, coded.hash);  // masters were not rounded
  }
}

TEST(QuantisedWeights, MastersStayExact) {
  RunSpec spec = quantised(DType::bf16);
  spec.lr = 0;
  const RunResult coded = run_threads(spec);
  spec.policy.int8_weights = false;
  EXPECT_EQ(run_threads(spec).hash, coded.hash);
}

TEST(QuantisedWeights, EveryMeshBucketAndOrderHasTheSameBits) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    RunSpec spec = quantised(compute);
    spec.policy.order = Order::vertical;
    spec.policy.micro_batches = 2;
    const RunResult reference = run_threads(spec);
    int runs = 0;
    for (const int inner : {0, 2}) {
      for (const Placements& placements : all_placements()) {
        if (placements.params.empty() || (inner == 0 && placements.params != comm::kDataAxes)) continue;
        RunSpec other = spec;
        other.inner = inner;
        placements.apply(other.policy);
        other.policy.recompute = nn::Recompute(runs % 3);
        other.policy.overlap = runs % 2 == 0;
        other.policy.reduce_bucket = other.policy.gather_bucket = runs % 2 == 0 ? 900 : int64_t(1) << 40;
        other.policy.prefetch = runs % 3 == 0 ? 0 : 9000;
        other.policy.reuse_distance = runs % 3 == 1 ? std::numeric_limits<int64_t>::max() : 0;
        if (runs % 2 == 1) other.policy.offload.params = other.policy.offload.optimizer = Tier::host;
        const RunResult result = run_threads(other);
        EXPECT_EQ(result, reference) << placements.name << ", inner " << inner;
        EXPECT_EQ(result.booked, result.peak) << placements.name;
        ++runs;
      }
    }
    EXPECT_GT(runs, 4);
  }
}

TEST(QuantisedWeights, ReproducibleRunsAgreeOnEveryWorldSizeThatShards) {
  RunSpec spec = quantised();
  spec.policy.reproducible = true;
  spec.world = 2;
  spec.policy.micro_batches = 2;
  const RunResult reference = run_threads(spec);
  spec.world = 4;
  spec.policy.micro_batches = 1;
  EXPECT_EQ(run_threads(spec), reference);
}

TEST(QuantisedWeights, AreNotUsedWhereNothingIsGatheredForUse) {
  for (const int stage : {0, 1, 2}) {
    RunSpec spec = quantised();
    apply_stage(spec.policy, stage);
    const RunResult coded = run_threads(spec);
    EXPECT_EQ(coded.formula.cell_bytes, 0);
    spec.policy.int8_weights = false;
    EXPECT_EQ(run_threads(spec), coded);
  }
}

TEST(QuantisedWeights, GathersMoveAQuarterOfFp32AndHalfOfBf16) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    for (const int inner : {0, 2}) {
      RunSpec spec = quantised(compute);
      spec.inner = inner;
      const RunResult coded = run_threads(spec);
      spec.policy.int8_weights = false;
      const RunResult plain = run_threads(spec);
      const int64_t width = int64_t(size_of(compute)), sums = int64_t(sizeof(StepSums)) * (spec.world - 1);
      EXPECT_EQ(plain.traffic.gathered - sums, plain.formula.gathered * width);
      EXPECT_EQ(coded.formula.gathered, 0);
      EXPECT_EQ(coded.traffic.gathered - sums, coded.formula.cell_bytes);
      // 68 bytes for 64 elements.
      EXPECT_EQ(coded.formula.cell_bytes * 64, plain.formula.gathered * 68);
      EXPECT_EQ(coded.traffic.reduced, plain.traffic.reduced);
    }
  }
}

// With parameters in groups, a step gives every group its exact parameters once; uses gather cells inside.
TEST(QuantisedWeights, WhatUpdatesPublishToGroupsIsExact) {
  RunSpec spec = quantised(DType::bf16);
  spec.inner = 2;
  spec.policy.params = comm::kShardAxes;
  const RunResult result = run_threads(spec);
  EXPECT_GT(result.formula.gathered, 0);
  EXPECT_GT(result.formula.cell_bytes, 0);
  EXPECT_EQ(result.traffic.gathered - int64_t(sizeof(StepSums)) * 3,
            result.formula.gathered * 2 + result.formula.cell_bytes);
}

TEST(QuantisedWeights, MemoryIsWhatWasPlanned) {
  for (const int64_t prefetch : {int64_t(0), int64_t(1) << 40}) {
    RunSpec spec = quantised(DType::bf16);
    spec.policy.prefetch = prefetch;
    const MemoryPlan plan = plan_memory(test::model_of(spec), test::options_of(spec));
    const RunResult result = run_threads(spec);
    EXPECT_EQ(plan.ledger->booked(Tier::device), result.peak);
    EXPECT_EQ(result.booked, result.peak);
  }
}

TEST(QuantisedWeights, TheCheckerObjects) {
  const RunSpec spec = quantised();
  const nn::LayerList model = test::model_of(spec);
  const Policy policy = normalized(spec.policy, comm::Mesh::flat(2));
  const UnitTable units = make_units(model, policy, comm::Mesh::flat(2));
  const Program program = compile({model, units, policy, comm::Mesh::flat(2), spec.batch});
  check_program(program, units);
  const auto expect_objection = [&](const char* what, const auto& is_it, const auto& spoil) {
    Program spoiled = program;
    const auto found = std::ranges::find_if(spoiled.instructions, is_it);
    ASSERT_NE(found, spoiled.instructions.end());
    spoil(*found);
    test::expect_error(ErrorKind::internal, {what}, [&] { check_program(spoiled, units); });
  };
  const auto clear_instead = [](Instruction& in, int group, RegionId to) {
    in.action = ZeroGrads{.grads = {group, to}};
  };
  expect_objection("gathers cells that were not encoded", &Instruction::is<Encode>,
                   [&](Instruction& in) { clear_instead(in, in.as<Encode>()->group, in.as<Encode>()->to); });
  expect_objection("uses parameters that are not decoded", &Instruction::is<Decode>,
                   [&](Instruction& in) { clear_instead(in, in.as<Decode>()->group, in.as<Decode>()->to); });
  expect_objection("decodes parameters that are not gathered", &Instruction::is<Gather>,
                   [&](Instruction& in) {
                     const ChunkRange chunks = in.as<Gather>()->chunks;
                     clear_instead(in, chunks.group, chunks.region);
                   });
}

}  // namespace
}  // namespace zeno::zero
