// Promise 2: bytes and traffic are what the plan and the formulas say, to the byte.
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/train_run.h"
#include "zeno/zero/engine.h"

namespace zeno::zero {
namespace {

using test::Family;
using test::run_threads;
using test::RunResult;
using test::RunSpec;

// Ψ counted with padding: what the stages keep per rank, in bf16 with bf16 gradients, to the byte. Masters
// are two bytes beside their parameters, so that the 16 bytes of the papers are 14.
TEST(Memory, ModelStatesAreTheFormula) {
  for (int world : {1, 2, 4}) {
    for (int stage : {0, 1, 2, 3}) {
      EngineOptions options{.mesh = comm::Mesh::flat(world), .shape = {2, 12}, .threads = 1};
      apply_stage(options.policy, stage);
      options.policy.compute = options.policy.grad = options.policy.wire = DType::bf16;
      const nn::LayerList model = test::tiny_decoder(Family::llama);
      const UnitTable units = make_units(model, normalized(options.policy, options.mesh), options.mesh);
      size_t psi = 0;
      for (const Group& group : units.groups) psi += size_t(group.padded());
      EXPECT_LT(psi - size_t(units.elements()),
                units.params.size() * 64 + units.groups.size() * size_t(world) * 64);
      const size_t n = size_t(world);
      const size_t expected[] = {14 * psi, 4 * psi + 10 * psi / n, 2 * psi + 12 * psi / n, 14 * psi / n};
      const MemoryPlan plan = plan_memory(model, options);
      EXPECT_EQ(plan.model_state_bytes, expected[stage]) << "stage " << stage << " world " << world;
      // fp32 accumulation adds two bytes per gradient that is kept.
      options.policy.grad = options.policy.wire = DType::f32;
      const size_t grads = stage < 2 ? psi : psi / n;
      EXPECT_EQ(plan_memory(model, options).model_state_bytes, expected[stage] + 2 * grads);
    }
  }
}

TEST(Memory, PlanEqualsTheRunToTheByte) {
  for (int world : {1, 2, 3, 4}) {
    for (int stage : {0, 1, 2, 3}) {
      for (DType dtype : {DType::f32, DType::bf16}) {
        RunSpec spec;
        spec.world = world;
        spec.steps = 2;
        spec.policy.compute = dtype;
        spec.policy.micro_batches = 2;
        apply_stage(spec.policy, stage);
        const RunResult result = run_threads(spec);
        const MemoryPlan plan = plan_memory(test::model_of(spec), test::options_of(spec));
        EXPECT_EQ(plan.ledger->booked(Tier::device), result.peak) << "stage " << stage << " world " << world;
        EXPECT_EQ(result.booked, result.peak);
      }
    }
  }
}

TEST(Memory, ARunThatDoesNotFitIsRefused) {
  const std::unique_ptr<comm::World> world = comm::make_self_world();
  try {
    Engine engine(test::tiny_decoder(Family::llama), {.shape = {2, 12}, .memory_limit = 1000}, *world);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::memory);
  }
}

TEST(Memory, Fp8IsPlannedForAGpuAndRefusedOnACpu) {
  const nn::LayerList model = test::tiny_decoder(Family::llama, {.hidden = 512});
  EngineOptions options{.shape = {2, 16}, .device = {Device::Kind::cuda, 0}};
  options.policy.compute = DType::bf16;
  const size_t plain = plan_memory(model, options).ledger->booked(Tier::device);
  options.policy.fp8 = true;
  EXPECT_GT(plan_memory(model, options).ledger->booked(Tier::device), plain);
  EngineOptions fp32 = options, cpu = options;
  fp32.policy.compute = DType::f32;
  cpu.device = {};
  for (const EngineOptions& refused : {fp32, cpu}) {
    test::expect_error(ErrorKind::usage, {"fp8", "bf16 on a GPU", "--device cuda"},
                       [&] { plan_memory(model, refused); });
  }
}

// What the communicators moved is what the program says, and that is the formula (program_test).
TEST(Traffic, CountedBytesEqualTheProgram) {
  for (int world : {2, 3}) {
    for (int stage : {0, 1, 2, 3}) {
      RunSpec spec;
      spec.world = world;
      spec.policy.micro_batches = 3;
      spec.policy.order = Order::vertical;
      apply_stage(spec.policy, stage);
      const RunResult result = run_threads(spec);
      const int64_t sums = int64_t(sizeof(StepSums)) * (world - 1);
      EXPECT_EQ(result.traffic.gathered - sums, result.formula.gathered * 4) << "stage " << stage;
      EXPECT_EQ(result.traffic.reduced, result.formula.reduced * 4) << "stage " << stage;
    }
  }
}

}  // namespace
}  // namespace zeno::zero
