// Sequences that ranks share (Ulysses): the training of the flat run of the same global batch.
#include <gtest/gtest.h>

#include "tests/support/train_run.h"
#include "zeno/zero/program/program_check.h"

namespace zeno::zero {
namespace {

using test::RunSpec;

RunSpec spec_of(int context, int data, int stage) {
  RunSpec spec;
  spec.family = test::Family::llama;
  spec.world = context * data;
  spec.context = context;
  spec.batch = {2, 12};
  spec.policy.micro_batches = 2;
  apply_stage(spec.policy, stage);
  return spec;
}

RunSpec whole(RunSpec spec) {
  spec.world /= spec.context;
  spec.context = 1;
  return spec;
}

void expect_close(const test::RunResult& shared, const test::RunResult& flat, double slack) {
  ASSERT_EQ(shared.losses.size(), flat.losses.size());
  for (size_t i = 0; i < flat.losses.size(); ++i) {
    EXPECT_NEAR(shared.losses[i], flat.losses[i], slack);
    EXPECT_NEAR(shared.norms[i], flat.norms[i], slack * flat.norms[i]);
  }
}

TEST(Context, TrainsAsTheWholeSequencesDo) {
  for (const auto& [context, data] : {std::pair{2, 1}, {2, 2}, {4, 1}}) {
    for (const DType compute : {DType::f32, DType::bf16}) {
      RunSpec spec = spec_of(context, data, 3);
      spec.policy.compute = compute;
      const test::RunResult flat = test::run_threads(whole(spec)), shared = test::run_threads(spec);
      EXPECT_EQ(shared.losses[0], flat.losses[0]) << "forward has the same bits";
      expect_close(shared, flat, compute == DType::f32 ? 1e-4 : 3e-2);
    }
  }
}

// Stages, recompute, overlap and the order of micro-batches change no bits here either.
TEST(Context, SettingsGiveTheSameBits) {
  const test::RunResult first = test::run_threads(spec_of(2, 2, 0));
  for (int variant = 0; variant < 8; ++variant) {
    RunSpec spec = spec_of(2, 2, variant % 4);
    spec.policy.overlap = variant % 2 == 0;
    spec.policy.order = variant < 4 || variant % 4 < 2 ? Order::vertical : Order::horizontal;
    spec.policy.recompute = variant % 3 == 0   ? nn::Recompute::full
                            : variant % 3 == 1 ? nn::Recompute::selective
                                               : nn::Recompute::none;
    if (spec.policy.order == Order::horizontal && variant % 4 >= 2) continue;  // a class of its own
    EXPECT_EQ(test::run_threads(spec), first) << "variant " << variant;
  }
}

TEST(Context, GoesThroughAPipelineAsWell) {
  RunSpec spec = spec_of(2, 1, 1);
  spec.policy.order = Order::horizontal;
  const test::RunResult shared = test::run_threads(spec);
  spec.pipe = 2;
  spec.world *= 2;
  EXPECT_EQ(test::run_threads(spec), shared);
}

// Two exchanges in each direction, and none along an axis of one rank.
TEST(Context, JointsFollowTheAxis) {
  for (const int context : {1, 2}) {
    const RunSpec spec = spec_of(context, 2, 3);
    const CompiledStep step = compile_step(test::model_of(spec), test::options_of(spec));
    EXPECT_NO_THROW(check_program(step.program, step.units));
    const auto joints = std::ranges::count_if(step.program.instructions, &Instruction::is<Exchange>);
    EXPECT_EQ(joints, context == 1 ? 0 : 4 * spec.shape.blocks * spec.policy.micro_batches);
  }
}

// The bytes that ranks really send are those of the program.
TEST(Context, TrafficIsThatOfTheProgram) {
  const test::RunResult run = test::run_threads(spec_of(2, 1, 3));
  EXPECT_GT(run.formula.exchanged, 0);
  EXPECT_EQ(run.traffic.exchanged, run.formula.exchanged * int64_t(sizeof(float)));
}

}  // namespace
}  // namespace zeno::zero
