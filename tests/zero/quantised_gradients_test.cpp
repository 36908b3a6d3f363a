// Gradients that are exchanged in blocks of few bits: eight inside groups, four across. A run is the same
// every time, whatever the stage, the buckets and the overlap; sums are off by half a step of each rounding
// at most; the wire carries what the formula says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/expect_error.h"
#include "tests/zero/mesh_runs.h"
#include "zeno/zero/program/program_check.h"

namespace zeno::zero {
namespace {

using comm::kDataAxes;
using comm::kShardAxes;
using test::Family;
using test::run_threads;
using test::RunResult;
using test::RunSpec;

// inner: ranks of a group; 0: all.
RunSpec quantised(int inner, int stage = 3) {
  RunSpec spec;
  spec.world = 4;
  spec.inner = inner;
  spec.steps = 3;
  spec.policy.coded_gradients = true;
  apply_stage(spec.policy, stage);
  return spec;
}

RunResult exact(RunSpec spec) {
  spec.policy.coded_gradients = false;
  return run_threads(spec);
}

TEST(QuantisedGradients, StagesBucketsAndOverlapGiveTheSameBits) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    for (const int inner : {0, 1, 2}) {
      RunSpec spec = quantised(inner);
      spec.policy.compute = compute;
      const RunResult reference = run_threads(spec);
      EXPECT_NE(exact(spec), reference);
      for (const int stage : {1, 2, 3}) {
        apply_stage(spec.policy, stage);
        spec.policy.overlap = stage != 2;
        spec.policy.reduce_bucket = stage == 3 ? 700 : int64_t(1) << 40;
        spec.policy.recompute = nn::Recompute(stage % 3);
        const RunResult result = run_threads(spec);
        EXPECT_EQ(result, reference) << "stage " << stage << ", inner " << inner;
        EXPECT_EQ(result.booked, result.peak);
      }
    }
  }
}

TEST(QuantisedGradients, MicroBatchesInBothOrders) {
  for (const Order order : {Order::horizontal, Order::vertical}) {
    for (const int inner : {0, 2}) {
      for (const Placements& placements : all_placements()) {
        if (placements.optimizer.empty()) continue;
        RunSpec spec = quantised(inner);
        spec.policy.order = order;
        spec.policy.micro_batches = 2;
        placements.apply(spec.policy);
        const RunResult result = run_threads(spec), plain = exact(spec);
        EXPECT_EQ(run_threads(spec), result) << placements.name;
        EXPECT_EQ(result.booked, result.peak) << placements.name;
        for (size_t step = 0; step < plain.losses.size(); ++step)
          EXPECT_NEAR(result.losses[step], plain.losses[step], 0.05) << placements.name << ", step " << step;
      }
    }
  }
}

TEST(QuantisedGradients, WholeGradientsAreReducedExactly) {
  for (const int inner : {0, 2}) {
    const RunSpec spec = quantised(inner, 0);
    const RunResult result = run_threads(spec);
    EXPECT_EQ(result, exact(spec));
    EXPECT_EQ(result.formula.coded_bytes, 0);
  }
}

// The gradients of a step in which all ranks see the same batch: each gives one `ranks`th of the sum.
std::vector<std::vector<float>> gradients(const RunSpec& spec) {
  std::vector<std::vector<float>> all;
  comm::run_thread_ranks(spec.world, {}, [&](comm::World& world) {
    Engine engine(test::model_of(spec), test::options_of(spec), world);
    engine.load(test::init_values);
    const test::OwnedBatch batch = test::make_batch(spec.batch, spec.shape.vocab, 0, 0);
    engine.step(std::vector{batch.view()}, {});
    for (int p = 0; p < int(engine.units().params.size()); ++p) {
      std::vector<float> values(size_t(engine.units().params[size_t(p)].count()));
      engine.read(State::grad, p, 0, values);
      if (world.rank() == 0) all.push_back(std::move(values));
    }
  });
  return all;
}

TEST(QuantisedGradients, AreOffByHalfAStepOfEachRoundingAtMost) {
  for (const int inner : {0, 1, 2}) {
    RunSpec spec = quantised(inner);
    const auto coded = gradients(spec);
    spec.policy.coded_gradients = false;
    const auto plain = gradients(spec);
    const double near = inner == 0 ? 4 : inner, far = 4 / near;
    double largest_error = 0;
    for (size_t p = 0; p < plain.size(); ++p) {
      for (size_t begin = 0; begin < plain[p].size(); begin += size_t(kWireCell)) {
        const size_t end = std::min(plain[p].size(), begin + size_t(kWireCell));
        double most = 0;
        for (size_t i = begin; i < end; ++i) most = std::max(most, std::abs(double(plain[p][i])) / 4);
        // Of what a rank gives and, where groups send their sums to each other, of those.
        const double inside = near > 1 ? near * most / 127 / 2 : 0;
        const double across = far > 1 ? (near * most + inside) / 7 / 2 : 0;
        const double bound = far * (inside + across);
        for (size_t i = begin; i < end; ++i) {
          const double error = std::abs(double(coded[p][i]) - double(plain[p][i]));
          EXPECT_LE(error, bound * (1 + 1e-4) + 1e-12) << "parameter " << p << ", element " << i;
          largest_error = std::max(largest_error, error);
        }
      }
    }
    EXPECT_GT(largest_error, 0);
  }
}

TEST(QuantisedGradients, MoveTheBytesOfTheFormula) {
  const auto run = [](int inner) { return run_threads(quantised(inner)); };
  const RunResult plain = exact(quantised(0));
  EXPECT_EQ(plain.traffic.exchanged, 0);
  EXPECT_EQ(plain.traffic.reduced, plain.formula.reduced * 4);
  for (const int inner : {0, 1, 2}) {
    const RunResult coded = run(inner);
    EXPECT_EQ(coded.formula.reduced, 0);
    EXPECT_EQ(coded.traffic.reduced, 0);
    EXPECT_EQ(coded.traffic.exchanged, coded.formula.coded_bytes);
  }
  // 68 or 36 bytes for 64 elements of four bytes.
  EXPECT_EQ(run(0).formula.coded_bytes * 64, plain.formula.reduced * 68);
  EXPECT_EQ(run(1).formula.coded_bytes * 64, plain.formula.reduced * 36);
  // Of S elements, a half goes to the other rank of the group, and a quarter to the other group.
  const int64_t elements = plain.formula.reduced * 4 / 3;
  EXPECT_EQ(run(2).formula.coded_bytes * 64, elements / 2 * 68 + elements / 4 * 36);
}

// Copies of shards: what they add to each other is exact.
TEST(QuantisedGradients, SumsBetweenCopiesAreExact) {
  RunSpec spec = quantised(2);
  spec.policy.params = spec.policy.grads = spec.policy.optimizer = kShardAxes;
  const RunResult result = run_threads(spec);
  EXPECT_GT(result.formula.coded_bytes, 0);
  EXPECT_GT(result.formula.reduced, 0);
  EXPECT_EQ(result.traffic.reduced, result.formula.reduced * 4);
  EXPECT_EQ(result.traffic.exchanged, result.formula.coded_bytes);
}

TEST(QuantisedGradients, MemoryIsWhatWasPlanned) {
  for (const int inner : {0, 2}) {
    const RunSpec spec = quantised(inner);
    const MemoryPlan plan = plan_memory(test::model_of(spec), test::options_of(spec));
    EXPECT_EQ(plan.ledger->booked(Tier::device), run_threads(spec).peak);
  }
}

// A gradient that is not finite is found, and the step skipped.
TEST(QuantisedGradients, OverflowIsFound) {
  RunSpec spec = quantised(2);
  spec.steps = 1;
  spec.policy.compute = DType::f16;
  spec.loss_scale = 1e30;
  const RunResult result = run_threads(spec);
  spec.loss_scale = 1;
  spec.lr = 0;
  EXPECT_EQ(result.hash, run_threads(spec).hash);
}

TEST(QuantisedGradients, ReproducibleRunsRefuseThem) {
  RunSpec spec = quantised(0);
  spec.policy.reproducible = true;
  test::expect_error(ErrorKind::usage, {"reproducible", "--quantized-gradients"},
                     [&] { normalized(spec.policy, comm::Mesh::flat(4)); });
}

TEST(QuantisedGradients, TheCheckerObjects) {
  const RunSpec spec = quantised(0);
  const nn::LayerList model = test::model_of(spec);
  const Policy policy = normalized(spec.policy, comm::Mesh::flat(4));
  const UnitTable units = make_units(model, policy, comm::Mesh::flat(4));
  Program program = compile({model, units, policy, comm::Mesh::flat(4), spec.batch});
  check_program(program, units);
  std::ranges::find_if(program.instructions, &Instruction::is<Reduce>)->as<Reduce>()->scatter = false;
  test::expect_error(ErrorKind::internal, {"exchanges cells"}, [&] { check_program(program, units); });
}

}  // namespace
}  // namespace zeno::zero
