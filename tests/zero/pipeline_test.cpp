// Stages of a pipeline: the same bits as without one, and programs that fit together.
#include <gtest/gtest.h>

#include <tuple>

#include "tests/support/expect_error.h"
#include "tests/support/train_run.h"
#include "zeno/zero/program/program_check.h"
#include "zeno/zero/program/program_match.h"

namespace zeno::zero {
namespace {

using test::RunSpec;

RunSpec spec_of(int pipe, int data, int micro_batches, int stage = 0) {
  RunSpec spec;
  spec.family = test::Family::llama;
  spec.shape.blocks = 4;
  spec.world = pipe * data;
  spec.pipe = pipe;
  spec.batch = {1, 12};
  spec.policy.micro_batches = micro_batches;
  spec.policy.order = Order::horizontal;
  apply_stage(spec.policy, stage);
  return spec;
}

// What a run without a pipeline gives for the same global batch.
test::RunResult without(RunSpec spec) {
  spec.world /= spec.pipe;
  spec.pipe = 1;
  return test::run_threads(spec);
}

TEST(Pipeline, GivesTheBitsOfTheFlatRun) {
  for (const auto& [pipe, data] : {std::pair{2, 1}, {4, 1}, {2, 2}, {3, 1}}) {
    for (const int micro_batches : {1, 2, 5}) {
      for (const int stage : {0, 1, 2, 3}) {
        const RunSpec spec = spec_of(pipe, data, micro_batches, stage);
        EXPECT_EQ(test::run_threads(spec), without(spec))
            << pipe << " stages × " << data << ", " << micro_batches << " micro-batches, ZeRO " << stage;
      }
    }
  }
}

TEST(Pipeline, RecomputeOverlapTypesAndOffloadChangeNoBits) {
  for (int variant = 0; variant < 8; ++variant) {
    RunSpec spec = spec_of(2, 2, 4, variant % 4);
    spec.policy.overlap = variant % 2 == 0;
    if (variant >= 4) spec.policy.recompute = nn::Recompute::full;
    if (variant % 3 == 1) spec.policy.recompute = nn::Recompute::selective;
    if (variant % 3 == 2) spec.policy.compute = DType::bf16;
    spec.policy.reproducible = variant == 6;
    if (variant == 5) spec.policy.offload.optimizer = Tier::host;
    EXPECT_EQ(test::run_threads(spec), without(spec)) << "variant " << variant;
  }
}

// Both stages that use the embedding have it; its gradient is summed in another order.
TEST(Pipeline, TiedEmbeddingsLiveInTwoStages) {
  for (const auto& [pipe, data] : {std::pair{2, 1}, {3, 2}}) {
    for (const int stage : {0, 1, 3}) {
      RunSpec spec = spec_of(pipe, data, 3, stage);
      spec.family = test::Family::gpt2;
      const test::RunResult flat = without(spec), staged = test::run_threads(spec);
      ASSERT_EQ(staged.losses.size(), flat.losses.size());
      EXPECT_EQ(staged.losses[0], flat.losses[0]);
      for (size_t i = 1; i < flat.losses.size(); ++i) EXPECT_NEAR(staged.losses[i], flat.losses[i], 1e-4);
      EXPECT_NEAR(staged.norms[0], flat.norms[0], 1e-5 * flat.norms[0]);
      spec.policy.reproducible = true;  // each layer's gradients are summed by themselves
      EXPECT_EQ(test::run_threads(spec), without(spec)) << pipe << " × " << data << ", ZeRO " << stage;
    }
  }
}

TEST(Pipeline, FrozenLayersSendNoGradients) {
  RunSpec spec = spec_of(3, 1, 2);
  for (const nn::Parameter& p : make_units(test::model_of(spec), {}, comm::Mesh()).params) {
    if (p.name.starts_with("embed") || p.name.starts_with("blocks.0") || p.name.starts_with("blocks.1"))
      spec.frozen.push_back(p.name);
  }
  EXPECT_EQ(test::run_threads(spec), without(spec));
}

// Of every stage: checked, and matched with the others.
TEST(Pipeline, ProgramsOfAllStagesFitTogether) {
  for (const int pipe : {2, 3, 5}) {
    for (const int micro_batches : {1, 3, 8}) {
      for (const bool overlap : {true, false}) {
        RunSpec spec = spec_of(pipe, 2, micro_batches, 3);
        spec.family = test::Family::gpt2;
        spec.policy.overlap = overlap;
        std::vector<std::vector<Communication>> lists;
        for (int rank = 0; rank < spec.world; ++rank) {
          const CompiledStep step = compile_step(test::model_of(spec), test::options_of(spec), rank);
          EXPECT_NO_THROW(check_program(step.program, step.units));
          lists.push_back(communications_of(step.program, step.units));
        }
        std::vector<const std::vector<Communication>*> views;
        for (const auto& list : lists) views.push_back(&list);
        EXPECT_NO_THROW(match(views, mesh_of(spec))) << pipe << " stages, " << micro_batches;
      }
    }
  }
}

// A stage keeps the activations of no more micro-batches than there are stages from it on.
TEST(Pipeline, ActivationsAreBoundedByTheStagesThatFollow) {
  RunSpec few = spec_of(4, 1, 4), many = spec_of(4, 1, 16);
  for (int rank = 0; rank < 4; ++rank) {
    const auto activations = [&](const RunSpec& spec) {
      return plan_memory(test::model_of(spec), test::options_of(spec), rank)
          .ledger->booked(Tier::device, Purpose::activations);
    };
    // Losses of each token are kept there too.
    const size_t rows = size_t(12 * (16 - 4)) * (sizeof(float) + sizeof(int32_t));
    EXPECT_LE(activations(many), activations(few) + rows) << "stage " << rank;
  }
}

// Every rank books what the plan says of it, to the byte, and the plan of the mesh is that of the stage that
// needs most.
TEST(Pipeline, EachStageIsPlannedToTheByte) {
  for (const auto& [pipe, data, context, stage] :
       {std::tuple{2, 1, 1, 0}, {3, 1, 1, 1}, {2, 2, 1, 3}, {2, 1, 2, 1}, {4, 1, 1, 0}}) {
    for (const test::Family family : {test::Family::llama, test::Family::gpt2}) {
      RunSpec spec = spec_of(pipe, data * context, 3, stage);
      spec.family = family;
      spec.context = context;
      spec.steps = 2;
      const nn::LayerList model = test::model_of(spec);
      const MemoryPlan all = plan_memory(model, test::options_of(spec));
      const auto both = [](const MemoryPlan& plan) {
        return plan.ledger->booked(Tier::device) + plan.ledger->booked(Tier::host);
      };
      size_t most = 0;
      for (const MemoryPlan& plan : plan_stages(model, test::options_of(spec))) {
        most = std::max(most, both(plan));
        EXPECT_TRUE(plan.stages[0].index != all.stages[0].index || both(plan) == both(all));
      }
      EXPECT_EQ(both(all), most);
      comm::run_thread_ranks(spec.world, {.deadline = std::chrono::seconds(20)}, [&](comm::World& world) {
        const test::RunResult run = test::run_rank(spec, world);
        const MemoryPlan plan = plan_memory(model, test::options_of(spec), world.rank());
        for (const Tier tier : kTiers) {
          EXPECT_EQ(run.booked_tiers[size_t(tier)], plan.ledger->booked(tier)) << "rank " << world.rank();
          EXPECT_EQ(run.peak_tiers[size_t(tier)], plan.ledger->booked(tier)) << "rank " << world.rank();
        }
      });
    }
  }
}

// On a GPU each tier is that of the stage with most of it; on a CPU both are one memory.
TEST(Pipeline, TheNeediestStageIsNamedForEachTier) {
  const std::vector<TierBytes> stages{{50, 10, 0}, {40, 30, 5}, {45, 16, 7}};
  EXPECT_EQ(neediest_stages(Device::Kind::cuda, stages), (std::array{0, 1, 2}));
  EXPECT_EQ(neediest_stages(Device::Kind::cpu, stages), (std::array{1, 1, 2}));
}

TEST(Pipeline, MoreStagesThanLayersAreRefused) {
  RunSpec spec = spec_of(7, 1, 1);
  test::expect_error(ErrorKind::usage, {"7 stages", "at most 6"},
                     [&] { compile_step(test::model_of(spec), test::options_of(spec)); });
  spec = spec_of(2, 1, 2);
  spec.policy.order = Order::vertical;
  test::expect_error(ErrorKind::usage, {"vertical", "2 stages", "leave out --order vertical"},
                     [&] { compile_step(test::model_of(spec), test::options_of(spec)); });
}

TEST(Stages, AreCutByTheirWork) {
  const nn::LayerList model = test::tiny_decoder(test::Family::llama, {.blocks = 12});
  for (const int count : {1, 2, 3, 7, 14}) {
    const std::vector<Stage> stages = cut_stages(model, {1, 16}, DType::f32, count);
    ASSERT_EQ(int(stages.size()), count);

    EXPECT_EQ(stages.back().end, 14);
    for (int i = 0; i < count; ++i) {
      EXPECT_LT(stages[size_t(i)].first, stages[size_t(i)].end);
      EXPECT_EQ(stages[size_t(i)].first, i > 0 ? stages[size_t(i) - 1].end : 0);
    }
  }
}

}  // namespace
}  // namespace zeno::zero
