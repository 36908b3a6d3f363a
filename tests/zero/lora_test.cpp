// Adapters and noise under ZeRO: the frozen base costs parameters only, and every stage, world size, order
// and recompute setting gives the same bits.
#include <gtest/gtest.h>

#include "tests/support/train_run.h"

namespace zeno::zero {
namespace {

using test::Family;
using test::run_threads;
using test::RunResult;
using test::RunSpec;

RunSpec adapted(Family family, DType compute = DType::f32, const std::string& without = "o") {
  RunSpec spec;
  spec.family = family;
  spec.policy.compute = compute;
  spec.policy.seed = 11;
  spec.shape.neftune_alpha = 5;
  spec.shape.lora = std::make_shared<nn::LoraOptions>(
      nn::LoraOptions{.rank = 4, .scale = 2, .dropout = 0.1f, .adapts = [=](std::string_view module) {
                        return module.substr(module.rfind('.') + 1) != without;
                      }});
  return spec;
}

TEST(Adapters, EveryStageOrderAndRecomputeGivesTheSameBits) {
  for (Family family : {Family::gpt2, Family::llama, Family::qwen3}) {
    for (DType compute : {DType::f32, DType::bf16}) {
      for (int world : {1, 2, 3}) {
        RunSpec spec = adapted(family, compute);
        spec.world = world;
        spec.policy.micro_batches = 2;
        spec.policy.order = Order::vertical;
        const RunResult reference = run_threads(spec);
        for (int stage : {1, 2, 3}) {
          apply_stage(spec.policy, stage);
          spec.policy.recompute = nn::Recompute((stage + world) % 3);
          spec.policy.reduce_bucket = spec.policy.gather_bucket = stage == 2 ? 500 : int64_t(1) << 40;
          const RunResult result = run_threads(spec);
          EXPECT_EQ(result, reference) << "world " << world << " stage " << stage;
          EXPECT_EQ(result.booked, result.peak);
        }
      }
    }
  }
}

TEST(Adapters, ReproducibleRunsDrawTheSameOnEveryWorldSize) {
  RunSpec spec = adapted(Family::llama);
  spec.policy.reproducible = true;
  spec.policy.micro_batches = 4;
  const RunResult reference = run_threads(spec);
  for (int world : {2, 4}) {
    spec.world = world;
    spec.policy.micro_batches = 4 / world;
    apply_stage(spec.policy, world == 2 ? 3 : 1);
    EXPECT_EQ(run_threads(spec), reference) << world;
  }
  spec.policy.seed = 12;
  EXPECT_NE(run_threads(spec).losses, reference.losses);
}

TEST(Adapters, TheBaseKeepsItsBitsAndCostsParametersOnly) {
  for (int stage : {0, 2, 3}) {
    RunSpec spec = adapted(Family::qwen3, DType::bf16);
    spec.world = 2;
    apply_stage(spec.policy, stage);
    comm::run_thread_ranks(2, {}, [&](comm::World& world) {
      Engine engine(test::model_of(spec), test::options_of(spec), world);
      engine.load(test::init_values);
      const test::OwnedBatch batch = test::make_batch(spec.batch, 61, 0, world.rank());
      const MicroBatch view = batch.view();
      engine.step({&view, 1}, {.hyper = {.lr = 0.01, .step = 1}});
      const UnitTable& units = engine.units();
      for (int g = 0; g < int(units.groups.size()); ++g) {
        for (State state : {State::grad, State::master, State::first_moment, State::second_moment})
          EXPECT_EQ(engine.store().exists(state, g), units.groups[size_t(g)].trainable);
      }
      for (int p = 0; p < int(units.params.size()); ++p) {
        const nn::Parameter& param = units.params[size_t(p)];
        EXPECT_EQ(param.trainable, param.adapter) << param.name;
        std::vector<float> now(size_t(param.count())), start(now.size());
        engine.read(State::master, p, 0, now);
        test::init_values(param, 0, start);
        if (!param.trainable) {
          for (float& value : start) value = float(BF16(value));
        }
        EXPECT_EQ(now == start, !param.trainable) << param.name;
      }
    });
  }
}

// What lies below the first adapter has no backward and keeps nothing for it.
TEST(Adapters, NothingRunsBackwardBelowTheFirst) {
  RunSpec spec = adapted(Family::llama);
  spec.shape.blocks = 3;
  spec.shape.neftune_alpha = 0;
  spec.shape.lora = std::make_shared<nn::LoraOptions>(
      nn::LoraOptions{.rank = 2, .adapts = [](std::string_view m) { return m == "blocks.1.down"; }});
  for (nn::Recompute recompute : {nn::Recompute::none, nn::Recompute::full}) {
    spec.policy.recompute = recompute;
    spec.policy.recompute_every = 2;
    const nn::LayerList model = test::model_of(spec);
    const UnitTable units = make_units(model, spec.policy, comm::Mesh::flat(1));
    EXPECT_EQ(units.first_trained(), 2);
    for (const Instruction& in :
         compile({model, units, spec.policy, comm::Mesh::flat(1), spec.batch}).instructions) {
      if (in.is<Backward>()) {
        EXPECT_GE(in.unit, 2);
      }
      if (in.is<Forward>() && in.unit < 2) {
        EXPECT_EQ(in.as<Forward>()->saved, kNoRegion);
      }
    }
  }
  const RunResult full = run_threads(spec);
  spec.policy.recompute = nn::Recompute::none;
  EXPECT_EQ(run_threads(spec), full);
  spec.world = 2;
  const RunResult two = run_threads(spec);
  apply_stage(spec.policy, 3);
  EXPECT_EQ(run_threads(spec), two);
}

TEST(Adapters, AreLearned) {
  RunSpec spec = adapted(Family::gpt2);
  spec.shape.neftune_alpha = 0;
  spec.steps = 1;
  const double first = run_threads(spec).losses[0];
  comm::run_thread_ranks(1, {}, [&](comm::World& world) {
    Engine engine(test::model_of(spec), test::options_of(spec), world);
    engine.load(test::init_values);
    const test::OwnedBatch batch = test::make_batch(spec.batch, 61, 0, 0);
    const MicroBatch view = batch.view();
    double last = 0;
    for (int step = 1; step <= 30; ++step)
      last = engine.step({&view, 1}, {.hyper = {.lr = 0.02, .step = step}}).loss;
    EXPECT_LT(last, 0.7 * first);
  });
}

}  // namespace
}  // namespace zeno::zero
