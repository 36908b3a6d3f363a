// Properties that any walk through a step must have, and where its waits are booked. How well it foretells
// real steps: prediction_test.cpp.
#include "zeno/plan/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/model_shapes.h"
#include "tests/support/tiny_decoder.h"

namespace zeno::plan {
namespace {

constexpr double kSlack = 1e-9;

// A GPU small enough that a tiny model keeps every part of it busy.
Machine toy() {
  Machine machine = named_machine("a100-8");
  machine.matmul_16bit = 2e9;
  machine.attention = 1e9;
  machine.memory_rate = 1e9;
  machine.launch = 1e-6;
  machine.host_link = 2e8;
  machine.host_updates = 4e7;
  machine.disk_read = machine.disk_write = 2e8;
  machine.inside = {4e8, 1e-6};
  machine.between = {1e8, 5e-6};
  return machine;
}

struct TimelineSetting {
  int stage = 0, world = 1;
  Tier optimizer = Tier::device;
  bool overlap = true;
  zero::Order order = zero::Order::horizontal;
  nn::Recompute recompute = nn::Recompute::none;
};

zero::EngineOptions options(const TimelineSetting& setting) {
  zero::EngineOptions o{
      .mesh = comm::Mesh::flat(setting.world), .shape = {2, 32}, .device = {Device::Kind::cuda, 0}};
  zero::apply_stage(o.policy, setting.stage);
  o.policy.compute = DType::bf16;
  o.policy.micro_batches = 2;
  o.policy.overlap = setting.overlap;
  o.policy.order = setting.order;
  o.policy.recompute = setting.recompute;
  o.policy.offload.optimizer = setting.optimizer;
  o.policy.offload.chunk = 4096;
  o.policy.offload.device_window = o.policy.offload.host_window = 16384;
  return o;
}

nn::LayerList timeline_model() { return test::tiny_decoder(test::Family::llama, {.blocks = 4}); }

struct Walked {
  zero::CompiledStep step;
  std::vector<Cost> costs;
  StepTime time;
};
Walked walk(const zero::EngineOptions& o, const Machine& machine) {
  const nn::LayerList layers = timeline_model();
  Walked w{.step = zero::compile_step(layers, o)};
  w.costs = CostModel(layers, w.step, machine).of_all();
  w.time = walk_step(w.step, w.costs);
  return w;
}

std::vector<TimelineSetting> settings() {
  std::vector<TimelineSetting> all;
  for (const auto& [stage, world] : {std::pair{0, 1}, {0, 2}, {1, 8}, {2, 16}, {3, 3}, {3, 16}})
    for (Tier tier : {Tier::device, Tier::host, Tier::disk})
      for (bool overlap : {true, false})
        for (zero::Order order : {zero::Order::horizontal, zero::Order::vertical})
          all.push_back(
              {stage, world, tier, overlap, order, overlap ? nn::Recompute::full : nn::Recompute::selective});
  return all;
}

TEST(Timeline, EverySecondIsBookedOnce) {
  for (const TimelineSetting& setting : settings()) {
    const Walked w = walk(options(setting), toy());
    SCOPED_TRACE(testing::Message() << "stage " << setting.stage << " world " << setting.world << " tier "
                                    << int(setting.optimizer) << " overlap " << setting.overlap);
    EXPECT_NEAR(w.time.compute_s + w.time.exposed_s(), w.time.step_s, 1e-6 * w.time.step_s);
    double by_unit = 0, all = 0;
    for (const auto& exposed : w.time.exposed_by_unit) by_unit += exposed.seconds;
    EXPECT_NEAR(by_unit, w.time.exposed_s(), kSlack);
    for (const Cost& cost : w.costs) all += cost.seconds;
    EXPECT_LE(w.time.step_s, all * (1 + 1e-6));
    // No part of the machine does more than its time, and each does what the instructions ask for.
    for (int r = 0; r < kResources; ++r) {
      double asked = 0;
      for (const Cost& cost : w.costs) asked += int(cost.resource) == r ? cost.seconds : 0;
      EXPECT_NEAR(w.time.used[size_t(r)], asked, 1e-3 * w.time.step_s) << name_of(Resource(r));
      EXPECT_LE(w.time.used[size_t(r)], w.time.step_s * (1 + 1e-3));
    }
  }
}

TEST(Timeline, OrderIsKept) {
  for (const TimelineSetting& setting : settings()) {
    const Walked w = walk(options(setting), toy());
    const auto& list = w.step.program.instructions;
    std::array<double, zero::kLanes> lane_end;
    lane_end.fill(-1e9);
    for (size_t i = 0; i < list.size(); ++i) {
      const StepTime::Span span = w.time.spans[i];
      EXPECT_LE(span.start, span.end);
      EXPECT_GE(span.start, lane_end[size_t(list[i].lane)] - 1e-6);
      lane_end[size_t(list[i].lane)] = span.end;
      for (int wait : list[i].waits) EXPECT_GE(span.start, w.time.spans[size_t(wait)].end - 1e-6);
      for (int wait : list[i].carried)
        EXPECT_GE(span.start, w.time.spans[size_t(wait)].end - w.time.step_s - 1e-6);
    }
  }
}

TEST(Timeline, OneRankWithEverythingAtHandWaitsForNothing) {
  const Walked w = walk(options({}), toy());
  EXPECT_NEAR(w.time.exposed_s(), 0, kSlack);
  EXPECT_EQ(w.time.bottleneck, Resource::compute);
}

TEST(Timeline, OverlapHidesWhatTheOtherSettingShows) {
  for (int stage : {0, 1, 2, 3}) {
    TimelineSetting setting{.stage = stage, .world = 8};
    setting.overlap = false;
    const Walked apart = walk(options(setting), toy());
    setting.overlap = true;
    const Walked beside = walk(options(setting), toy());
    const auto communication = [](const Walked& w) { return w.time.exposed[size_t(Wait::communication)]; };
    EXPECT_NEAR(communication(apart), apart.time.used[size_t(Resource::network)], kSlack);
    EXPECT_LT(communication(beside), communication(apart));
    EXPECT_LT(beside.time.step_s, apart.time.step_s);
  }
}

// Whatever is made slow is what the step is found to wait for.
TEST(Timeline, TheSlowPartIsNamed) {
  struct SlowPart {
    TimelineSetting setting;
    double cpu_share;
    Wait wait;
    std::function<void(Machine&)> slow;
  };
  const auto slower = [](double& rate) { rate /= 1000; };
  const std::vector<SlowPart> cases{
      {{.stage = 3, .world = 8}, 0, Wait::communication, [&](Machine& m) { slower(m.inside.rate); }},
      {{.stage = 2, .world = 16}, 0, Wait::communication, [&](Machine& m) { slower(m.between.rate); }},
      {{.optimizer = Tier::host}, 0, Wait::host_link, [&](Machine& m) { slower(m.host_link); }},
      {{.optimizer = Tier::disk}, 0, Wait::disk, [&](Machine& m) { slower(m.disk_write); }},
      {{.optimizer = Tier::host}, 0.5, Wait::cpu_updates, [&](Machine& m) { slower(m.host_updates); }}};
  for (const SlowPart& c : cases) {
    Machine machine = toy();
    c.slow(machine);
    zero::EngineOptions o = options(c.setting);
    o.policy.offload.cpu_share = c.cpu_share;
    const StepTime time = walk(o, machine).time;
    EXPECT_GT(time.exposed[size_t(c.wait)], 0.9 * time.step_s) << name_of(c.wait);
    EXPECT_NE(time.bottleneck, Resource::compute);
    ASSERT_FALSE(time.exposed_by_unit.empty());
    EXPECT_TRUE(
        std::ranges::is_sorted(time.exposed_by_unit, std::ranges::greater{}, &StepTime::Exposed::seconds));
  }
}

// On a CPU, ranks move bytes with the cores that compute: nothing is won by doing both at once.
TEST(Timeline, CpuRanksShareTheirCores) {
  Machine cores{.name = "cores",
                .matmul_16bit = 2e9,
                .matmul_fp32 = 2e9,
                .attention = 1e9,
                .memory_rate = 1e8,
                .launch = 1e-6};
  cores.inside = {2e7, 1e-6};
  zero::EngineOptions o = options({.stage = 3, .world = 2});
  o.policy.compute = DType::f32;
  const Walked w = walk(o, cores);
  o.mesh = {};
  const StepTime one = predict_step(timeline_model(), o, cores);
  double all = 0;
  for (const Cost& cost : w.costs) all += cost.seconds;
  EXPECT_GT(w.time.step_s, 1.9 * one.step_s);
  EXPECT_LE(w.time.step_s, all + kSlack);
}

// Stages that take equally long, forward once and backward twice as long, and nothing else costs anything.
TEST(Timeline, EqualStagesWaitForFillingAndDraining) {
  const nn::LayerList layers = test::tiny_decoder(test::Family::llama, {.blocks = 8});
  for (const auto& [stages, micro_batches] : {std::pair{1, 4}, {2, 1}, {2, 4}, {3, 16}, {4, 4}, {4, 8}}) {
    zero::EngineOptions o = options({.stage = 1, .world = 2});
    o.mesh = o.mesh.with(comm::Axis::pipe, stages);
    o.policy.micro_batches = micro_batches;
    std::vector<zero::CompiledStep> steps;
    std::vector<std::vector<Cost>> costs;
    for (const int rank : o.mesh.group(0, {comm::Axis::pipe})) {
      const auto& list = steps.emplace_back(zero::compile_step(layers, o, rank)).program.instructions;
      const double forward = double(std::ranges::count_if(list, &zero::Instruction::is<zero::Forward>));
      const double backward = double(std::ranges::count_if(list, &zero::Instruction::is<zero::Backward>));
      std::vector<Cost>& mine = costs.emplace_back(list.size());
      for (size_t i = 0; i < list.size(); ++i) {
        if (list[i].is<zero::Forward>()) mine[i].seconds = micro_batches / forward;
        if (list[i].is<zero::Backward>()) mine[i].seconds = 2 * micro_batches / backward;
      }
    }
    const StepTime time = walk_stages(steps, costs);
    const double turns = micro_batches + stages - 1;
    EXPECT_NEAR(time.step_s, 3 * turns, 1e-6) << stages << " stages, " << micro_batches;
    EXPECT_NEAR(time.exposed[size_t(Wait::pipeline)] / time.step_s, (stages - 1) / turns, 1e-6);
    EXPECT_NEAR(time.compute_s, 3 * micro_batches, 1e-6);
  }
}

TEST(Timeline, ThePipelineWaitsForItsSlowestStage) {
  for (const bool overlap : {true, false}) {
    zero::EngineOptions o = options({.stage = 1, .world = 2, .overlap = overlap});
    o.mesh = o.mesh.with(comm::Axis::pipe, 3);
    o.policy.micro_batches = 8;
    const StepTime time = predict_step(model(), o, toy());
    EXPECT_EQ(time.stage.count, 3);
    EXPECT_NEAR(time.compute_s + time.exposed_s(), time.step_s, 1e-6 * time.step_s);
    EXPECT_GT(time.exposed[size_t(Wait::pipeline)], 0);
    // No faster than a third of the work, no slower than without overlap of the stages.
    zero::EngineOptions flat = o;
    flat.mesh = comm::Mesh::flat(2);
    const StepTime one = predict_step(model(), flat, toy());
    EXPECT_GT(time.step_s, one.compute_s / 3);
    EXPECT_LT(time.step_s, one.step_s);
    EXPECT_NEAR(time.model_flops, one.model_flops / 3, 1e-6 * one.model_flops);
    EXPECT_NEAR(time.tokens_per_s * time.step_s, one.tokens_per_s * one.step_s, 1e-3);
    // A slow link between the stages is waited for.
    Machine slow = toy();
    slow.inside.rate /= 1000;
    EXPECT_GT(predict_step(model(), o, slow).exposed[size_t(Wait::pipeline)],
              10 * time.exposed[size_t(Wait::pipeline)]);
  }
}

// Ranks that share sequences have a part of them each.
TEST(Timeline, TokensAreThoseOfTheGlobalBatch) {
  zero::EngineOptions o = options({.stage = 3, .world = 8});
  const auto tokens = [&] {
    const StepTime time = predict_step(model(), o, toy());
    return time.tokens_per_s * time.step_s;
  };
  const double flat = 2 * 2 * 32 * 8;
  EXPECT_NEAR(tokens(), flat, 1e-6 * flat);
  o.mesh = comm::mesh_of({.ranks = 8, .context = 2});
  o.shape.seq /= 2;
  EXPECT_NEAR(tokens(), flat / 2, 1e-6 * flat);
  o.mesh = comm::mesh_of({.ranks = 8, .pipe = 2, .context = 2});
  EXPECT_NEAR(tokens(), flat / 4, 1e-6 * flat);
}

// 70 billion parameters: more micro-batches fill the pipeline, and each token costs what it costs without
// one.
TEST(Timeline, ALargeModelInAPipeline) {
  const nn::LayerList layers = test::shape_of(test::gpt(8192, 80, 64), 2048);
  zero::EngineOptions o{.mesh = comm::mesh_of({.ranks = 64, .ranks_per_host = 8, .pipe = 8}),
                        .shape = {1, 2048}};
  zero::apply_stage(o.policy, 1);
  o.policy.compute = DType::bf16;
  o.policy.recompute = nn::Recompute::full;
  double last = 0;
  for (const int micro_batches : {8, 32, 128}) {
    o.policy.micro_batches = micro_batches;
    const StepTime time = predict_step(layers, o, named_machine("h100-8"));
    EXPECT_NEAR(time.tokens_per_s, 8.0 * 2048 * micro_batches / time.step_s, 1e-6 * time.tokens_per_s);
    EXPECT_GT(time.flops_per_s(), last);
    last = time.flops_per_s();
    const double bubble = time.exposed[size_t(Wait::pipeline)] / time.step_s;
    EXPECT_NEAR(bubble, 7.0 / (micro_batches + 7), 0.05) << micro_batches;
  }
  zero::EngineOptions flat = o;
  flat.mesh = comm::Mesh::flat(8);
  flat.policy.micro_batches = 1;
  const StepTime alone = predict_step(layers, flat, named_machine("h100-8"));
  EXPECT_NEAR(last / (alone.model_flops / alone.compute_s), 0.9, 0.1);
}

// A plan of this size must come at once: nothing on the way to it may grow with the square of a count.
TEST(Timeline, ATrillionParameters) {
  const nn::LayerList layers = test::shape_of(test::gpt(25600, 128, 160), 2048);
  zero::EngineOptions o{.shape = {1, 2048}};
  zero::apply_stage(o.policy, 3);
  o.policy.compute = DType::bf16;
  o.policy.micro_batches = 8;
  o.policy.recompute = nn::Recompute::full;
  for (int world : {1024, 16384}) {
    o.mesh = comm::Mesh::flat(world);
    const StepTime time = predict_step(layers, o, named_machine("h100-8"));
    const double tokens = 8 * 2048;
    // 6 FLOP per parameter and token, and attention.
    EXPECT_NEAR(time.model_flops / (6 * 1.008e12 * tokens), 1.0, 0.03);
    EXPECT_NEAR(time.tokens_per_s, tokens * world / time.step_s, 1e-6 * time.tokens_per_s);
    EXPECT_EQ(time.bottleneck, Resource::network);
  }
}

}  // namespace
}  // namespace zeno::plan
