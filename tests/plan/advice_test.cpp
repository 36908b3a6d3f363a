// What is advised fits, is the best of what was tried, and says why.
#include "zeno/plan/advice.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/model_shapes.h"

namespace zeno::plan {
namespace {

constexpr int64_t kSeq = 2048;

struct Case {
  nn::LayerList layers;
  AdviceQuestion question;

  Case(const model::InitOptions& shape, const std::string& machine_name, int world, Goal goal = Goal::fastest)
      : layers(test::shape_of(shape, kSeq)), question(ask(machine_name, world, goal)) {}

 private:
  AdviceQuestion ask(const std::string& machine_name, int world, Goal goal) const {
    const Machine machine = named_machine(machine_name);
    zero::EngineOptions options;
    options.policy.compute = DType::bf16;
    options.policy.grad = options.policy.wire = DType::bf16;
    options.shape = {1, kSeq};
    options.mesh = comm::Mesh::flat(world);
    options.device = {machine.kind, 0};
    const MemoryLimits limits{size_t(machine.memory), size_t(machine.host_memory / machine.node_ranks)};
    return {.model = {layers, {}},
            .options = options,
            .machine = machine,
            .choices = all_choices(machine.kind, options.mesh, limits),
            .sequences = 0,
            .goal = goal,
            .next_larger = [] { return test::shape_of(test::kQwen14B, kSeq); }};
  }
};

bool mentions(const std::vector<std::string>& lines, std::string_view text) {
  return std::ranges::any_of(lines,
                             [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

TEST(Advice, TheFastestThatFits) {
  const Case c(test::kQwen7B, "h100-8", 8);
  const Advice advice = advise(c.question);
  ASSERT_TRUE(advice.chosen);
  EXPECT_TRUE(advice.chosen->row.fits());
  for (const Option& other : advice.tried) {
    EXPECT_TRUE(other.row.fits());
    EXPECT_GE(advice.chosen->time.tokens_per_s, 0.97 * other.time.tokens_per_s) << flags_of(other);
  }
  // Of a 7B model, 16 bytes each are 122 GB: too much for one, sharded optimizer states are not.
  EXPECT_GE(advice.chosen->row.setting.stage, 1);
  EXPECT_EQ(advice.chosen->row.setting.homes, Homes::device);
  for (const char* part : {"stage 0", "stage 1", "stage 2", "stage 3", "does not fit", "← this one",
                           "twice the "
                           "micro-batch",
                           "a model with twice as many blocks"})
    EXPECT_TRUE(mentions(advice.reasons, part)) << part;
}

TEST(Advice, ASmallModelStaysSimple) {
  const Case c(test::kQwenHalfB, "h200-1", 1);
  const Advice advice = advise(c.question);
  ASSERT_TRUE(advice.chosen);
  EXPECT_EQ(advice.chosen->row.setting.homes, Homes::device);
  EXPECT_EQ(advice.chosen->row.setting.recompute, nn::Recompute::none);
}

TEST(Advice, WhatDoesNotFitLeavesTheDevice) {
  const Case c(test::kQwen14B, "h200-1", 1);
  const Advice advice = advise(c.question);
  ASSERT_TRUE(advice.chosen);
  EXPECT_GT(advice.chosen->row.setting.homes, Homes::device);
  EXPECT_TRUE(mentions(advice.reasons, "states leave the device because nothing fits there"));
}

TEST(Advice, OtherGoals) {
  const Advice fastest = advise(Case(test::kLlama3B, "h100-8", 8).question);
  const Advice largest = advise(Case(test::kLlama3B, "h100-8", 8, Goal::largest_batch).question);
  const Advice smallest = advise(Case(test::kLlama3B, "h100-8", 8, Goal::smallest).question);
  ASSERT_TRUE(fastest.chosen && largest.chosen && smallest.chosen);
  EXPECT_GE(largest.chosen->row.setting.micro_batch, fastest.chosen->row.setting.micro_batch);
  for (const Option& other : smallest.tried)
    EXPECT_LE(smallest.chosen->row.bytes.total(Tier::device), other.row.bytes.total(Tier::device));
  EXPECT_LT(smallest.chosen->row.bytes.total(Tier::device), fastest.chosen->row.bytes.total(Tier::device));
}

TEST(Advice, KeepsTheBatchOfAStep) {
  Case c(test::kLlama3B, "h100-8", 8);
  for (const int64_t sequences : {8, 96, 512}) {
    c.question.sequences = sequences;
    const Advice advice = advise(c.question);
    ASSERT_TRUE(advice.chosen);
    EXPECT_EQ(advice.chosen->row.setting.micro_batch * advice.chosen->micro_batches * 8, sequences);
  }
}

TEST(Advice, WhereNothingFitsItSaysWhatWould) {
  Case c(test::kQwen14B, "h100-8", 2);
  c.question.choices.limits = {size_t(8) << 30, size_t(8) << 30};
  std::erase(c.question.choices.homes, Homes::disk);
  const Advice advice = advise(c.question);
  EXPECT_FALSE(advice.chosen);
  EXPECT_TRUE(mentions(advice.reasons, "ranks would be enough"));
}

TEST(Advice, GoalsByName) {
  for (const Goal goal : {Goal::fastest, Goal::largest_batch, Goal::smallest})
    EXPECT_EQ(parse_goal(name_of(goal)), goal);
  EXPECT_FALSE(parse_goal("cheapest"));
}

}  // namespace
}  // namespace zeno::plan
