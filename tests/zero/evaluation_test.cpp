// Evaluation is the forward half of a step: the same loss to the last bit, the same for every stage, order
// and world size, no state changed, no byte more than planned.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/expect_error.h"
#include "tests/support/train_run.h"
#include "zeno/zero/engine.h"
#include "zeno/zero/program/program_check.h"

namespace zeno::zero {
namespace {

using test::Family;
using test::OwnedBatch;

constexpr nn::BatchShape kShape{2, 12};
constexpr int64_t kVocab = 61;

std::vector<MicroBatch> views_of(const std::vector<OwnedBatch>& batches) {
  std::vector<MicroBatch> views;
  for (const OwnedBatch& batch : batches) views.push_back(batch.view());
  return views;
}

// Logical micro-batch `id` of a set; some have few valid rows, id 3 has none.
OwnedBatch uneven_batch(int id) {
  OwnedBatch batch = test::make_batch(kShape, kVocab, 5, id);
  const size_t keep = id == 3 ? 0 : std::min(batch.valid_rows.size(), size_t(1 + 4 * id));
  for (size_t i = keep; i < batch.valid_rows.size(); ++i) batch.targets[size_t(batch.valid_rows[i])] = -1;
  batch.valid_rows.resize(keep);
  return batch;
}

OwnedBatch empty_batch() {
  OwnedBatch batch = test::make_batch(kShape, kVocab, 5, 0);
  std::fill(batch.targets.begin(), batch.targets.end(), -1);
  batch.valid_rows.clear();
  return batch;
}

struct Outcome {
  EvalResult eval;
  uint64_t before = 0, after = 0;
  size_t booked = 0, peak = 0, planned = 0;
};

// Six micro-batches dealt to `world` ranks; what is missing at the end is empty.
Outcome evaluate_six(int world, EngineOptions options, Family family = Family::llama) {
  Outcome outcome;
  options.mesh = comm::Mesh::flat(world);
  comm::run_thread_ranks(world, {.deadline = std::chrono::seconds(20)}, [&](comm::World& w) {
    Engine engine(test::tiny_decoder(family), options, w);
    engine.load(test::init_values);
    const int k = options.policy.micro_batches, per_round = k * world;
    std::vector<OwnedBatch> owned;
    const auto batches = [&](int64_t round) {
      owned.clear();
      for (int mb = 0; mb < k; ++mb) {
        const int id = int(round) * per_round + w.rank() * k + mb;
        owned.push_back(id < 6 ? uneven_batch(id) : empty_batch());
      }
      return views_of(owned);
    };
    const uint64_t before = engine.weights_hash();
    const EvalResult eval = *engine.evaluate((6 + per_round - 1) / per_round, batches);
    const uint64_t after = engine.weights_hash();
    if (w.rank() != 0) return;
    outcome = {eval,
               before,
               after,
               engine.ledger().booked(Tier::device),
               engine.ledger().peak(Tier::device),
               plan_memory(test::tiny_decoder(family), options).ledger->booked(Tier::device)};
  });
  return outcome;
}

TEST(Evaluation, SameBitsForEveryWorldStageAndOrder) {
  std::optional<Outcome> first;
  int64_t tokens = 0;
  for (int id = 0; id < 6; ++id) tokens += int64_t(uneven_batch(id).valid_rows.size());
  for (int world : {1, 2, 3, 4}) {
    for (int stage : {0, 1, 2, 3}) {
      EngineOptions options{.shape = kShape, .threads = 1};
      apply_stage(options.policy, stage);
      options.policy.micro_batches = 1 + (world + stage) % 2;
      options.policy.order = stage % 2 == 0 ? Order::horizontal : Order::vertical;
      options.policy.overlap = stage != 1;
      if (stage == 2) options.policy.recompute = nn::Recompute::full;
      const Outcome outcome = evaluate_six(world, options);
      EXPECT_EQ(outcome.before, outcome.after);
      EXPECT_EQ(outcome.booked, outcome.peak);
      EXPECT_EQ(outcome.planned, outcome.peak);
      EXPECT_EQ(outcome.eval.tokens, tokens);
      EXPECT_GT(outcome.eval.loss, 1);
      EXPECT_LE(outcome.eval.hits, outcome.eval.tokens);
      if (!first) first = outcome;
      EXPECT_EQ(outcome.eval.loss, first->eval.loss) << "world " << world << " stage " << stage;
      EXPECT_EQ(outcome.eval.hits, first->eval.hits) << "world " << world << " stage " << stage;
    }
  }
}

TEST(Evaluation, EqualsTheTrainingLossBeforeTheUpdate) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (Family family : {Family::gpt2, Family::llama, Family::qwen3}) {
      comm::run_thread_ranks(2, {}, [&](comm::World& world) {
        EngineOptions options{.mesh = comm::Mesh::flat(world.size()), .shape = kShape, .threads = 1};
        apply_stage(options.policy, 3);
        options.policy.compute = dtype;
        options.policy.micro_batches = 2;
        Engine engine(test::tiny_decoder(family), options, world);
        engine.load(test::init_values);
        for (int step = 1; step <= 3; ++step) {
          std::vector<OwnedBatch> owned;
          for (int mb = 0; mb < 2; ++mb)
            owned.push_back(test::make_batch(kShape, kVocab, step, 2 * world.rank() + mb));
          const std::vector<MicroBatch> views = views_of(owned);
          const EvalResult eval = *engine.evaluate(1, [&](int64_t) { return views; });
          const StepResult result = engine.step(views, {.hyper = {.lr = 1e-2, .step = step}, .clip = 1});
          EXPECT_EQ(eval.loss, result.loss);
          EXPECT_EQ(eval.tokens, result.tokens);
        }
      });
    }
  }
}

// Evaluations between steps leave losses, weights and counted traffic of the steps as they are.
TEST(Evaluation, DoesNotDisturbTraining) {
  const auto run = [](bool evaluates) {
    std::pair<std::vector<double>, uint64_t> result;
    comm::run_thread_ranks(3, {}, [&](comm::World& world) {
      EngineOptions options{.mesh = comm::Mesh::flat(world.size()), .shape = kShape, .threads = 1};
      apply_stage(options.policy, 2);
      Engine engine(test::tiny_decoder(Family::qwen3), options, world);
      engine.load(test::init_values);
      std::vector<double> numbers;
      for (int step = 1; step <= 4; ++step) {
        const OwnedBatch batch = test::make_batch(kShape, kVocab, step, world.rank());
        const MicroBatch view = batch.view();
        if (evaluates) engine.evaluate(3, [&](int64_t) { return std::vector{view}; });
        const StepResult out = engine.step({&view, 1}, {.hyper = {.lr = 1e-2, .step = step}, .clip = 1});
        numbers.insert(numbers.end(), {out.loss, out.grad_norm, double(out.traffic.gathered)});
      }
      const uint64_t hash = engine.weights_hash();
      if (world.rank() == 0) result = {numbers, hash};
    });
    return result;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Evaluation, CountsHits) {
  const std::unique_ptr<comm::World> world = comm::make_self_world();
  EngineOptions options{.shape = kShape, .threads = 1};
  Engine engine(test::tiny_decoder(Family::llama), options, *world);
  engine.load(test::init_values);
  const OwnedBatch batch = test::make_batch(kShape, kVocab, 0, 0);
  const MicroBatch view = batch.view();
  const auto evaluate = [&] { return *engine.evaluate(1, [&](int64_t) { return std::vector{view}; }); };
  EXPECT_LT(evaluate().accuracy(), 0.3);
  for (int step = 1; step <= 60; ++step) {
    engine.step({&view, 1}, {.hyper = {.lr = 1e-2, .step = step}, .clip = 1});
  }
  EXPECT_GE(evaluate().accuracy(), 0.9);  // learned by heart
  EXPECT_EQ(engine.evaluate(0, {})->tokens, 0);
}

// An engine that only evaluates has the same result without gradients, masters and moments.
TEST(Evaluation, NeedsNoTrainingState) {
  for (int stage : {0, 2, 3}) {
    EngineOptions options{.shape = kShape, .threads = 1};
    apply_stage(options.policy, stage);
    options.policy.compute = DType::bf16;
    const Outcome trains = evaluate_six(2, options);
    options.policy.trains = false;
    const Outcome only = evaluate_six(2, options);
    EXPECT_EQ(only.eval.loss, trains.eval.loss);
    EXPECT_EQ(only.eval.hits, trains.eval.hits);
    EXPECT_EQ(only.planned, only.peak);
    EXPECT_LT(only.peak, trains.peak);
    const MemoryPlan plan = plan_memory(test::tiny_decoder(Family::llama), options);
    for (Purpose purpose : {Purpose::gradients, Purpose::masters, Purpose::moments}) {
      EXPECT_EQ(plan.ledger->booked(Tier::device, purpose), 0u);
    }
  }
}

TEST(Evaluation, AnyRankEndsItForAll) {
  comm::run_thread_ranks(2, {}, [](comm::World& world) {
    EngineOptions options{.mesh = comm::Mesh::flat(world.size()), .shape = kShape, .threads = 1};
    Engine engine(test::tiny_decoder(Family::llama), options, world);
    engine.load(test::init_values);
    const OwnedBatch batch = empty_batch();
    const MicroBatch view = batch.view();
    int rounds = 0;
    const auto read = [&](int64_t) {
      ++rounds;
      return std::vector{view};
    };
    EXPECT_FALSE(engine.evaluate(100, read, [&] { return world.rank() == 1 && rounds == 5; }));
    EXPECT_EQ(rounds, 5);
    EXPECT_TRUE(engine.submit({&view, 1}, {.wishes = {.stop = world.rank() == 1}}).stop);
    EXPECT_EQ(engine.collect().tokens, 0);
    EXPECT_FALSE(engine.submit({&view, 1}, {}).stop);
    engine.collect();
  });
}

// The program: forward and loss only, each unit gathered, nothing that changes state.
TEST(Evaluation, ProgramHasNoGradientsAndLessMemory) {
  for (int stage : {0, 1, 2, 3}) {
    Policy policy;
    apply_stage(policy, stage);
    policy.micro_batches = 3;
    policy = normalized(policy, comm::Mesh::flat(4));
    const nn::LayerList model = test::tiny_decoder(Family::llama);
    const UnitTable units = make_units(model, policy, comm::Mesh::flat(4));
    const CompileInput input{model, units, policy, comm::Mesh::flat(4), kShape};
    const Program training = compile(input), evaluation = compile_evaluation(input);
    check_program(evaluation, units);
    EXPECT_FALSE(evaluation.trains);
    for (const Instruction& in : evaluation.instructions) {
      const bool known = in.is<Gather>() || in.is<Forward>() || in.is<Loss>() || in.is<SumLosses>() ||
                         in.is<Norm>() || in.is<Start>() || in.is<Finish>();
      EXPECT_TRUE(known) << name_of(in);
      EXPECT_TRUE(grads_of(in) == nullptr || grads_of(in)->groups.empty());
    }
    for (int p = 0; p < kPurposes; ++p)
      EXPECT_LE(evaluation.pool_bytes[size_t(Tier::device)][size_t(p)],
                training.pool_bytes[size_t(Tier::device)][size_t(p)]);
  }
}

TEST(Evaluation, TheCheckerObjectsToWhatChangesState) {
  const Policy policy;
  const nn::LayerList model = test::tiny_decoder(Family::llama);
  const UnitTable units = make_units(model, policy, comm::Mesh::flat(1));
  for (const Action& action : {Action(ZeroGrads{}), Action(Update{})}) {
    Program program = compile_evaluation({model, units, policy, comm::Mesh::flat(1), kShape});
    std::ranges::find_if(program.instructions, &Instruction::is<Finish>)->action = action;
    test::expect_error(ErrorKind::internal, {"changes state in an evaluation"},
                       [&] { check_program(program, units); });
  }
}

}  // namespace
}  // namespace zeno::zero
