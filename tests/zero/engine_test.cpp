// The engine as its users meet it: precision, overflow, clipping, frozen, sparse, persistent and odd
// parameters.
#include "zeno/zero/engine.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/support/expect_error.h"
#include "tests/support/idle_layer.h"
#include "tests/support/train_run.h"
#include "zeno/device/copy.h"
#include "zeno/kernels/master_rest.h"

namespace zeno::zero {
namespace {

using test::Family;
using test::run_threads;
using test::RunResult;
using test::RunSpec;

TEST(Engine, LearnsOneBatchByHeart) {
  comm::run_thread_ranks(2, {}, [](comm::World& world) {
    EngineOptions options{.mesh = comm::Mesh::flat(world.size()), .shape = {2, 12}, .threads = 1};
    apply_stage(options.policy, 3);
    Engine engine(test::tiny_decoder(Family::llama), options, world);
    engine.load(test::init_values);
    const test::OwnedBatch batch = test::make_batch(options.shape, 61, 0, world.rank());
    const MicroBatch view = batch.view();
    double loss = 0;
    for (int step = 1; step <= 60; ++step) {
      loss = engine.step({&view, 1}, {.hyper = {.lr = 1e-2f, .step = step}, .clip = 1}).loss;
    }
    EXPECT_LT(loss, 0.1);
  });
}

TEST(Engine, StepsMayBeSubmittedAhead) {
  const auto run = [](bool ahead) {
    std::vector<double> losses;
    comm::run_thread_ranks(2, {}, [&](comm::World& world) {
      EngineOptions options{.mesh = comm::Mesh::flat(world.size()), .shape = {2, 12}, .threads = 1};
      apply_stage(options.policy, 3);
      Engine engine(test::tiny_decoder(Family::qwen3), options, world);
      engine.load(test::init_values);
      std::vector<double> mine;
      for (int step = 0; step < 6; ++step) {
        const test::OwnedBatch batch = test::make_batch(options.shape, 61, step, world.rank());
        const MicroBatch view = batch.view();
        engine.submit({&view, 1}, {.hyper = {.lr = 1e-2, .step = step + 1}, .clip = 1});
        if (step > 0 || !ahead) mine.push_back(engine.collect().loss);
      }
      if (ahead) mine.push_back(engine.collect().loss);
      if (world.rank() == 0) losses = mine;
    });
    return losses;
  };
  EXPECT_EQ(run(true), run(false));
}

// States in bf16 round stochastically as a function of seed, step and place: the bits do not depend on
// sharding.
TEST(Precision, SixteenBitStatesTrainAndAgreeOverStages) {
  RunSpec spec;
  spec.world = 2;
  spec.steps = 6;
  spec.policy.compute = DType::bf16;
  const RunResult wide = run_threads(spec);
  spec.policy.states = DType::bf16;
  const RunResult narrow = run_threads(spec);
  EXPECT_NE(narrow.hash, wide.hash);
  for (size_t i = 0; i < wide.losses.size(); ++i) {
    EXPECT_NEAR(narrow.losses[i], wide.losses[i], 0.02 * wide.losses[i]) << i;
  }
  for (int stage : {1, 2, 3}) {
    apply_stage(spec.policy, stage);
    EXPECT_EQ(run_threads(spec), narrow) << stage;
  }
  spec.policy.seed = 1;
  EXPECT_NE(run_threads(spec).hash, narrow.hash);
}

// Losses in other precisions stay close to fp32, and every stage agrees in each of them.
TEST(Precision, SixteenBitRunsTrackFp32) {
  RunSpec spec;
  spec.world = 2;
  const RunResult reference = run_threads(spec);
  for (DType compute : {DType::bf16, DType::f16}) {
    for (DType grad : {DType::f32, compute}) {
      for (DType wire : {DType::f32, DType::bf16}) {
        spec.policy.compute = compute;
        spec.policy.grad = grad;
        spec.policy.wire = wire;
        spec.loss_scale = compute == DType::f16 ? 1024 : 1;
        RunResult first;
        for (int stage : {1, 2, 3}) {
          apply_stage(spec.policy, stage);
          const RunResult result = run_threads(spec);
          if (stage == 1) first = result;
          EXPECT_EQ(result, first) << name_of(compute) << " " << name_of(grad) << " " << name_of(wire);
        }
        for (size_t i = 0; i < reference.losses.size(); ++i) {
          EXPECT_NEAR(first.losses[i], reference.losses[i], 0.03 * reference.losses[i]);
        }
      }
    }
  }
}

// Accumulation in 16 bits, reduced per micro-batch into a 16-bit shard.
TEST(Precision, SixteenBitAccumulationOverMicroBatches) {
  RunSpec spec;
  spec.world = 2;
  spec.policy.compute = spec.policy.grad = spec.policy.wire = DType::bf16;
  spec.policy.micro_batches = 3;
  apply_stage(spec.policy, 2);
  const RunResult two = run_threads(spec);
  apply_stage(spec.policy, 3);
  EXPECT_EQ(run_threads(spec), two);
  spec.policy.grad = spec.policy.wire = DType::f32;
  const RunResult exact = run_threads(spec);
  for (size_t i = 0; i < exact.losses.size(); ++i)
    EXPECT_NEAR(two.losses[i], exact.losses[i], 0.03 * exact.losses[i]);
}

// The scale cancels: a power of two in the loss changes no bit of an fp32 run.
TEST(Precision, LossScaleIsUndoneWithTheScaleThatWasUsed) {
  RunSpec spec;
  spec.world = 2;
  apply_stage(spec.policy, 2);
  const RunResult plain = run_threads(spec);
  spec.loss_scale = 4096;
  EXPECT_EQ(run_threads(spec), plain);
}

// An overflow is seen by every rank, in every stage; nothing changes, and the tensor is named.
TEST(Overflow, StepIsSkippedEverywhereAndNamed) {
  for (int stage : {0, 1, 2, 3}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      comm::run_thread_ranks(2, {}, [&](comm::World& world) {
        EngineOptions options{.mesh = comm::Mesh::flat(world.size()), .shape = {2, 12}, .threads = 1};
        options.policy.compute = dtype;
        apply_stage(options.policy, stage);
        Engine engine(test::tiny_decoder(Family::llama), options, world);
        engine.load(test::init_values);
        const uint64_t before = engine.weights_hash();
        const test::OwnedBatch batch = test::make_batch(options.shape, 61, 0, world.rank());
        const MicroBatch view = batch.view();
        // One rank's loss is scaled into infinity.
        const StepResult bad =
            engine.step({&view, 1}, {.loss_scale = 1e38 * (dtype == DType::f32 ? 1e2 : 1e2)});
        EXPECT_TRUE(bad.skipped);
        EXPECT_FALSE(bad.bad_tensor.empty());
        EXPECT_GE(bad.bad_rank, 0);
        EXPECT_EQ(engine.weights_hash(), before);
        const StepResult good = engine.step({&view, 1}, {.hyper = {.step = 1}});
        EXPECT_FALSE(good.skipped);
        EXPECT_NE(engine.weights_hash(), before);
      });
    }
  }
}

TEST(Frozen, ParametersKeepTheirBitsAndCostNoState) {
  RunSpec spec;
  spec.world = 2;
  spec.frozen = {"blocks.0.attn.qkv.weight", "blocks.1.mlp.up.weight", "embed.weight"};
  RunResult first;
  for (int stage : {0, 1, 2, 3}) {
    apply_stage(spec.policy, stage);
    const RunResult result = run_threads(spec);
    if (stage == 0) first = result;
    EXPECT_EQ(result, first) << "stage " << stage;
  }
  comm::run_thread_ranks(2, {}, [&](comm::World& world) {
    Engine engine(test::model_of(spec), test::options_of(spec), world);
    engine.load(test::init_values);
    const test::OwnedBatch batch = test::make_batch(spec.batch, 61, 0, world.rank());
    const MicroBatch view = batch.view();
    engine.step({&view, 1}, {.hyper = {.step = 1}});
    const auto& params = engine.units().params;
    for (int p = 0; p < int(params.size()); ++p) {
      std::vector<float> now(size_t(params[size_t(p)].count())), start(now.size());
      engine.read(State::master, p, 0, now);
      test::init_values(params[size_t(p)], 0, start);
      EXPECT_EQ(now == start, !params[size_t(p)].trainable) << params[size_t(p)].name;
    }
  });
}

// Rows of the embedding that were not touched are not sent, and the bits are those of the dense reduction.
TEST(Sparse, RowsGiveTheSameBitsAsDense) {
  for (int world : {2, 3, 4}) {
    for (int stage : {0, 1, 2, 3}) {
      RunSpec spec;
      spec.world = world;
      spec.shape.vocab = 400;
      spec.policy.micro_batches = 2;
      spec.policy.order = Order::vertical;
      apply_stage(spec.policy, stage);
      const RunResult dense = run_threads(spec);
      spec.policy.sparse_gradients = true;
      const RunResult sparse = run_threads(spec);
      EXPECT_EQ(sparse, dense) << "stage " << stage << " world " << world;
      EXPECT_LT(sparse.traffic.reduced, dense.traffic.reduced);
    }
  }
}

TEST(Persistence, SmallTensorsStayGatheredWithTheSameBits) {
  RunSpec spec;
  spec.world = 3;
  apply_stage(spec.policy, 3);
  const RunResult reference = run_threads(spec);
  for (int64_t threshold : {32, 2048, 1 << 20}) {
    spec.policy.persist_below = threshold;
    EXPECT_EQ(run_threads(spec), reference) << threshold;
  }
  spec.policy.persist_total = 100;
  EXPECT_EQ(run_threads(spec), reference);
}

// More ranks than some tensors have elements; tiny widths: shards are empty on most ranks.
TEST(Engine, MoreRanksThanElements) {
  RunSpec spec;
  spec.shape = {.hidden = 16, .heads = 2, .blocks = 1, .vocab = 5, .max_seq = 32};
  spec.batch = {1, 3};
  spec.world = 8;
  const RunResult reference = run_threads(spec);
  for (int stage : {1, 2, 3}) {
    apply_stage(spec.policy, stage);
    EXPECT_EQ(run_threads(spec), reference);
  }
}

// A micro-batch without any target adds nothing; a rank without targets still takes part.
TEST(Engine, LossIsNormalisedByValidTokensOfAllRanks) {
  for (int stage : {0, 3}) {
    comm::run_thread_ranks(2, {}, [&](comm::World& world) {
      EngineOptions options{.mesh = comm::Mesh::flat(world.size()), .shape = {2, 12}, .threads = 1};
      apply_stage(options.policy, stage);
      Engine engine(test::tiny_decoder(Family::llama), options, world);
      engine.load(test::init_values);
      test::OwnedBatch batch = test::make_batch(options.shape, 61, 0, 0);
      const size_t valid = batch.valid_rows.size();
      if (world.rank() == 1) {
        batch.targets.assign(batch.targets.size(), -1);
        batch.valid_rows.clear();
      }
      const MicroBatch view = batch.view();
      const StepResult two = engine.step({&view, 1}, {.hyper = {.lr = 0, .step = 1}});
      EXPECT_EQ(two.tokens, int64_t(valid));
      const std::unique_ptr<comm::World> alone = comm::make_self_world();
      Engine single(test::tiny_decoder(Family::llama), {.shape = {2, 12}, .threads = 1}, *alone);
      single.load(test::init_values);
      const test::OwnedBatch same = test::make_batch(options.shape, 61, 0, 0);
      const MicroBatch same_view = same.view();
      const StepResult one = single.step({&same_view, 1}, {.hyper = {.lr = 0, .step = 1}});
      EXPECT_EQ(one.loss, two.loss);
      EXPECT_NEAR(one.grad_norm, two.grad_norm, 1e-6 * one.grad_norm);
    });
  }
}

// Four micro-batches equal one batch four times as large (up to the order of fp32 sums).
TEST(Engine, AccumulationEqualsALargerBatch) {
  const std::unique_ptr<comm::World> world = comm::make_self_world();
  const auto run = [&](int micro_batches) {
    const nn::BatchShape shape{4 / micro_batches, 12};
    EngineOptions options{.shape = shape, .threads = 1};
    options.policy.micro_batches = micro_batches;
    Engine engine(test::tiny_decoder(Family::gpt2), options, *world);
    engine.load(test::init_values);
    const test::OwnedBatch all = test::make_batch({4, 12}, 61, 0, 0);
    std::vector<test::OwnedBatch> parts(static_cast<size_t>(micro_batches));
    for (int32_t r = 0; r < 48; ++r) {
      test::OwnedBatch& part = parts[size_t(r / shape.rows())];
      part.tokens.push_back(all.tokens[size_t(r)]);
      part.targets.push_back(all.targets[size_t(r)]);
      part.positions.push_back(all.positions[size_t(r)]);
      part.doc_start.push_back(all.doc_start[size_t(r)]);
      if (all.targets[size_t(r)] >= 0) part.valid_rows.push_back(r % int32_t(shape.rows()));
    }
    std::vector<MicroBatch> views;
    for (const test::OwnedBatch& part : parts) views.push_back(part.view());
    return engine.step(views, {.hyper = {.step = 1}, .clip = 1});
  };
  const StepResult whole = run(1), four = run(4);
  EXPECT_EQ(whole.loss, four.loss);
  EXPECT_NEAR(whole.grad_norm, four.grad_norm, 1e-6 * whole.grad_norm);
}

TEST(Clip, ChangesTheUpdateAndReportsTheNormBeforeIt) {
  RunSpec spec;
  spec.world = 2;
  spec.clip = 0;
  spec.optimizer = OptimizerHyper::Kind::sgd;
  const RunResult free = run_threads(spec);
  spec.clip = 1e-3;
  const RunResult clipped = run_threads(spec);
  EXPECT_EQ(free.norms[0], clipped.norms[0]);
  EXPECT_GT(free.norms[0], 1e-3);
  EXPECT_NE(free.hash, clipped.hash);
  spec.clip = 1e9;  // never reached: the same as no clipping
  EXPECT_EQ(run_threads(spec), free);
}

TEST(Optimizers, AgreeOverStages) {
  for (auto kind : {OptimizerHyper::Kind::adam, OptimizerHyper::Kind::sgd, OptimizerHyper::Kind::lion}) {
    RunSpec spec;
    spec.world = 3;
    spec.optimizer = kind;
    spec.lr = 1e-3f;
    spec.policy.moments_second = kind == OptimizerHyper::Kind::adam;
    const RunResult reference = run_threads(spec);
    for (int stage : {1, 2, 3}) {
      apply_stage(spec.policy, stage);
      EXPECT_EQ(run_threads(spec), reference);
    }
  }
}

// Every state of every parameter can be read whole and written back, whatever the sharding.
TEST(State, ReadAndWriteRoundTrip) {
  for (int stage : {0, 1, 2, 3}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      comm::run_thread_ranks(3, {}, [&](comm::World& world) {
        EngineOptions options{.mesh = comm::Mesh::flat(world.size()), .shape = {2, 12}, .threads = 1};
        options.policy.compute = dtype;
        options.policy.reduce_bucket = 700;
        apply_stage(options.policy, stage);
        Engine engine(test::tiny_decoder(Family::gpt2), options, world);
        engine.load(test::init_values);
        for (int p = 0; p < int(engine.units().params.size()); ++p) {
          const int64_t count = engine.units().params[size_t(p)].count();
          for (State state : {State::master, State::first_moment, State::second_moment, State::grad}) {
            std::vector<float> values(static_cast<size_t>(count)), back(values.size());
            for (size_t i = 0; i < values.size(); ++i) values[i] = float(int(i % 251)) - float(p);
            for (uint32_t i = 0; i < values.size() && state == State::master; ++i) {
              const uint32_t bits = 0x3f000000u | (i * 0x9e3779b1u & 0x80ffffffu);
              const bool halfway = i % 16 == 0;  // between two of bf16
              values[i] = std::bit_cast<float>(halfway ? (bits & 0xffff0000u) | 0x8000u : bits);
            }
            engine.write(state, p, 0, values);
            engine.read(state, p, 0, back);
            EXPECT_EQ(back, values) << engine.units().params[size_t(p)].name;
            if (state == State::master) {
              engine.read(State::param, p, 0, back);
              dispatch_float(dtype, [&]<class T>() {
                for (float& value : values) value = float(copy_of_master<T>(value));
              });
              EXPECT_EQ(back, values) << engine.units().params[size_t(p)].name;
              engine.read(State::master, p, 0, values);
            }
            if (count < 10) continue;
            std::vector<float> middle(static_cast<size_t>(count / 3));
            engine.read(state, p, 3, middle);
            EXPECT_TRUE(std::equal(middle.begin(), middle.end(), values.begin() + 3));
          }
        }
      });
    }
  }
}

// Its gradient is zero: without decay it keeps its bits, and nobody waits for it.
TEST(Engine, UnusedParametersStayAndCostNothing) {
  for (int stage : {0, 1, 2, 3}) {
    comm::run_thread_ranks(2, {}, [&](comm::World& world) {
      EngineOptions options{.mesh = comm::Mesh::flat(world.size()), .shape = {2, 12}, .threads = 1};
      apply_stage(options.policy, stage);
      nn::LayerList model = test::tiny_decoder(Family::llama);
      model.layers.insert(model.layers.begin() + 2, std::make_unique<test::IdleLayer>());
      Engine engine(std::move(model), options, world);
      engine.load(test::init_values);
      const test::OwnedBatch batch = test::make_batch(options.shape, 61, 0, world.rank());
      const MicroBatch view = batch.view();
      for (int step = 1; step <= 3; ++step) engine.step({&view, 1}, {.hyper = {.step = step}});
      for (int p = 0; p < int(engine.units().params.size()); ++p) {
        const nn::Parameter& param = engine.units().params[size_t(p)];
        if (param.name != "idle.weight") continue;
        std::vector<float> now(size_t(param.count())), start(now.size());
        engine.read(State::master, p, 0, now);
        test::init_values(param, 0, start);
        EXPECT_EQ(now, start);
      }
    });
  }
}

// Their order of additions is not known, and MPI adds fp32 only.
TEST(Engine, RefusesNativeReductionsWhereTheyCannotBe) {
  RunSpec spec;
  spec.policy.reduction = comm::Reduction::native;
  const auto compile = [&](int ranks) {
    spec.world = ranks;
    compile_step(test::model_of(spec), test::options_of(spec));
  };
  compile(4);
  spec.policy.reproducible = true;
  test::expect_error(ErrorKind::usage,
                     {"reproducible: got native reductions", "leave out --reduction native"},
                     [&] { compile(4); });
  spec.policy.reproducible = false;
  spec.policy.wire = DType::bf16;
  test::expect_error(ErrorKind::usage, {"got gradients in bf16, expected fp32", "communication_data_type"},
                     [&] { compile(4); });
  compile(1);  // sends nothing
  spec.device = {Device::Kind::cuda, 0};
  compile(4);
}

}  // namespace
}  // namespace zeno::zero
