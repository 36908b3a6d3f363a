// A frozen base in NF4: every stage, world size, order and recompute setting gives the bits of adapters on a
// base that was rounded to NF4 beforehand, and costs about four bits for each of its weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/support/expect_error.h"
#include "tests/support/nf4_values.h"
#include "tests/support/train_run.h"
#include "zeno/zero/program/program_check.h"

namespace zeno::zero {
namespace {

using test::Family;
using test::is_base_weight;
using test::nf4_values;
using test::run_threads;
using test::RunResult;
using test::RunSpec;

// Matrices of several cells each, and of parts of cells.
RunSpec quantised(Family family, DType compute = DType::f32) {
  RunSpec spec;
  spec.family = family;
  spec.shape.hidden = 96;
  spec.batch = {1, 8};
  spec.steps = 2;
  spec.policy.compute = compute;
  spec.policy.seed = 5;
  spec.policy.micro_batches = 2;
  spec.policy.order = Order::vertical;
  spec.policy.nf4_base = true;
  spec.shape.lora = std::make_shared<nn::LoraOptions>(
      nn::LoraOptions{.rank = 4, .scale = 2, .dropout = 0.1f, .adapts = [](std::string_view module) {
                        return !module.ends_with(".o");
                      }});
  return spec;
}

TEST(Nf4Base, EqualsABaseThatWasRoundedBefore) {
  for (Family family : {Family::gpt2, Family::llama, Family::qwen3}) {
    for (DType compute : {DType::f32, DType::bf16}) {
      for (int world : {1, 2, 4}) {
        if (!ZENO_FULL_TESTS && family != Family::llama && world == 4) continue;
        RunSpec spec = quantised(family, compute);
        spec.world = world;
        spec.policy.nf4_base = false;
        spec.values = nf4_values;
        const RunResult reference = run_threads(spec);
        spec.values = test::init_values;
        EXPECT_NE(run_threads(spec), reference);
        spec.policy.nf4_base = true;
        for (int stage : {0, 1, 2, 3}) {
          apply_stage(spec.policy, stage);
          spec.policy.recompute = nn::Recompute((stage + world) % 3);
          spec.policy.reduce_bucket = spec.policy.gather_bucket = stage == 3 ? 40'000 : int64_t(1) << 40;
          spec.policy.persist_below = stage == 3 && world == 4 ? 20'000 : 0;
          const RunResult result = run_threads(spec);
          EXPECT_EQ(result, reference) << "world " << world << " stage " << stage << " " << name_of(compute);
          EXPECT_EQ(result.booked, result.peak);
        }
      }
    }
  }
}

TEST(Nf4Base, HorizontalOrderReuseAndNoOverlapGiveTheSameBits) {
  RunSpec spec = quantised(Family::llama, DType::bf16);
  spec.world = 2;
  apply_stage(spec.policy, 3);
  const RunResult vertical = run_threads(spec);
  spec.policy.prefetch = 0;
  spec.policy.reuse_distance = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(run_threads(spec), vertical);
  spec.policy.overlap = false;
  EXPECT_EQ(run_threads(spec), vertical);
  spec.policy.order = Order::horizontal;
  const RunResult horizontal = run_threads(spec);
  spec.policy.reuse_distance = 0;
  spec.policy.overlap = true;
  EXPECT_EQ(run_threads(spec), horizontal);
}

TEST(Nf4Base, ReproducibleRunsAgreeOnEveryWorldSize) {
  RunSpec spec = quantised(Family::llama);
  spec.policy.reproducible = true;
  spec.policy.micro_batches = 4;
  const RunResult reference = run_threads(spec);
  for (int world : {2, 4}) {
    spec.world = world;
    spec.policy.micro_batches = 4 / world;
    apply_stage(spec.policy, world == 2 ? 1 : 3);
    EXPECT_EQ(run_threads(spec), reference) << world;
  }
}

// Bytes of the base by formula, to the byte: cells, whole or as a shard, beside what stays in bf16.
TEST(Nf4Base, MemoryIsTheFormula) {
  for (int world : {1, 2, 4}) {
    for (int stage : {0, 2, 3}) {
      RunSpec spec = quantised(Family::llama, DType::bf16);
      apply_stage(spec.policy, stage);
      spec.world = world;
      const EngineOptions options = test::options_of(spec);
      const nn::LayerList model = test::model_of(spec);
      const UnitTable units = make_units(model, normalized(spec.policy, options.mesh), options.mesh);
      size_t expected = 0, cells = 0;
      int64_t slot = 0;  // elements of the largest unit that is decoded
      for (const Group& group : units.groups) {
        const int64_t kept = stage == 3 && world > 1 ? group.padded() / world : group.padded();
        EXPECT_EQ(group.nf4, is_base_weight(units.params[size_t(group.layout.tensors()[0].id)]));
        for (const FlatTensor& tensor : group.layout.tensors())
          EXPECT_EQ(is_base_weight(units.params[size_t(tensor.id)]), group.nf4);
        if (group.nf4) {
          EXPECT_EQ(kept % kNf4Cell, 0);
          cells += size_t(kept / kNf4Cell) * 8464;
          expected += round_up<size_t>(size_t(kept / kNf4Cell) * 8464, 128);
          slot = std::max(slot, group.padded());
        } else {
          expected += size_t(kept) * 2;
        }
      }
      EXPECT_GT(cells, 0u);
      const MemoryPlan plan = plan_memory(model, options);
      EXPECT_EQ(plan.ledger->booked(Tier::device, Purpose::parameters), expected);
      // Where nothing is gathered, the decoded weights of one unit are all that passes.
      if (stage < 3 || world == 1) {
        EXPECT_EQ(plan.ledger->booked(Tier::device, Purpose::gathered), size_t(slot) * 2);
      }
      spec.world = world;
      const RunResult result = run_threads(spec);
      EXPECT_EQ(plan.ledger->booked(Tier::device), result.peak) << "stage " << stage << " world " << world;
      EXPECT_EQ(result.booked, result.peak);
    }
  }
}

TEST(Nf4Base, GathersMoveCells) {
  RunSpec spec = quantised(Family::llama);
  spec.world = 2;
  apply_stage(spec.policy, 3);
  const RunResult result = run_threads(spec);
  const int64_t sums = int64_t(sizeof(StepSums)) * (spec.world - 1);
  EXPECT_GT(result.formula.cell_bytes, 0);
  EXPECT_EQ(result.traffic.gathered - sums, result.formula.gathered * 4 + result.formula.cell_bytes);
  spec.policy.nf4_base = false;
  const RunResult plain = run_threads(spec);
  EXPECT_EQ(plain.formula.cell_bytes, 0);
  EXPECT_LT(result.traffic.gathered, plain.traffic.gathered);
}

// Reading weights back, also from the middle of a cell, and evaluating with nothing trained.
TEST(Nf4Base, ReadsAndEvaluatesWhatItDecodes) {
  for (int stage : {0, 3}) {
    RunSpec spec = quantised(Family::qwen3, DType::bf16);
    spec.world = 2;
    spec.policy.trains = false;
    spec.policy.micro_batches = 1;
    apply_stage(spec.policy, stage);
    comm::run_thread_ranks(2, {}, [&](comm::World& world) {
      const auto evaluate = [&](bool nf4, const Engine::ValueReader& values) {
        EngineOptions options = test::options_of(spec);
        options.policy.nf4_base = nf4;
        Engine engine(test::model_of(spec), options, world);
        engine.load(values);
        for (int p = 0; p < int(engine.units().params.size()); ++p) {
          const nn::Parameter& param = engine.units().params[size_t(p)];
          const int64_t begin = param.count() / 3;
          std::vector<float> now(size_t(param.count() - begin)), expected(now.size());
          engine.read(State::master, p, begin, now);
          nf4_values(param, begin, expected);
          for (float& value : expected) value = float(BF16(value));
          EXPECT_EQ(now, expected) << param.name;
        }
        const test::OwnedBatch batch = test::make_batch(spec.batch, 61, 0, world.rank());
        return engine.evaluate(1, [&](int64_t) { return std::vector{batch.view()}; })->loss;
      };
      EXPECT_EQ(evaluate(true, test::init_values), evaluate(false, nf4_values));
    });
  }
}

TEST(Nf4Base, RefusesWeightsThatAreNotFinite) {
  const RunSpec spec = quantised(Family::llama);
  const std::unique_ptr<comm::World> world = comm::make_self_world();
  Engine engine(test::model_of(spec), {.policy = spec.policy, .shape = spec.batch, .threads = 1}, *world);
  test::expect_error(ErrorKind::data, {"blocks.1", "element 7", "nf4"}, [&] {
    engine.load([](const nn::Parameter& param, int64_t begin, std::span<float> out) {
      test::init_values(param, begin, out);
      if (begin == 0 && is_base_weight(param) && param.name.starts_with("blocks.1")) out[7] = std::nanf("");
    });
  });
}

// The checker sees weights that are used without being decoded, or decoded without being there.
TEST(Nf4Base, TheCheckerObjects) {
  RunSpec spec = quantised(Family::llama);
  apply_stage(spec.policy, 3);
  const nn::LayerList model = test::model_of(spec);
  const UnitTable units = make_units(model, spec.policy, comm::Mesh::flat(2));
  const Program program = compile({model, units, spec.policy, comm::Mesh::flat(2), spec.batch});
  check_program(program, units);
  const auto expect_objection = [&](const char* what, const auto& spoil) {
    Program spoiled = program;
    const auto decode = std::ranges::find_if(spoiled.instructions, &Instruction::is<Decode>);
    ASSERT_NE(decode, spoiled.instructions.end());
    spoil(*decode);
    test::expect_error(ErrorKind::internal, {what}, [&] { check_program(spoiled, units); });
  };
  expect_objection("not gathered", [](Instruction& in) { in.as<Decode>()->from = kNoRegion; });
  expect_objection("not decoded", [](Instruction& in) {
    const auto [group, from, to] = *in.as<Decode>();
    in.action = ZeroGrads{.grads = {group, to}};
  });
}

}  // namespace
}  // namespace zeno::zero
