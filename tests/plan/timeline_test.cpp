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
  zero::EngineOptions o{.shape = {2, 32}, .device = {Device::Kind::cuda, 0}};
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
Walked walk(const zero::EngineOptions& o, const Machine& machine, int world) {
  const nn::LayerList layers = timeline_model();
  Walked w{.step = zero::compile_step(layers, o, world)};
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
    const Walked w = walk(options(setting), toy(), setting.world);
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
    const Walked w = walk(options(setting), toy(), setting.world);
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
  const Walked w = walk(options({}), toy(), 1);
  EXPECT_NEAR(w.time.exposed_s(), 0, kSlack);
  EXPECT_EQ(w.time.bottleneck, Resource::compute);
}

TEST(Timeline, OverlapHidesWhatTheOtherSettingShows) {
  for (int stage : {0, 1, 2, 3}) {
    TimelineSetting setting{.stage = stage, .world = 8};
    setting.overlap = false;
    const Walked apart = walk(options(setting), toy(), 8);
    setting.overlap = true;
    const Walked beside = walk(options(setting), toy(), 8);
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
    const StepTime time = walk(o, machine, c.setting.world).time;
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
  zero::EngineOptions o = options({.stage = 3});
  o.policy.compute = DType::f32;
  const Walked w = walk(o, cores, 2);
  const StepTime one = predict_step(timeline_model(), o, cores, 1);
  double all = 0;
  for (const Cost& cost : w.costs) all += cost.seconds;
  EXPECT_GT(w.time.step_s, 1.9 * one.step_s);
  EXPECT_LE(w.time.step_s, all + kSlack);
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
    const StepTime time = predict_step(layers, o, named_machine("h100-8"), world);
    const double tokens = 8 * 2048;
    // 6 FLOP per parameter and token, and attention.
    EXPECT_NEAR(time.model_flops / (6 * 1.008e12 * tokens), 1.0, 0.03);
    EXPECT_NEAR(time.tokens_per_s, tokens * world / time.step_s, 1e-6 * time.tokens_per_s);
    EXPECT_EQ(time.bottleneck, Resource::network);
  }
}

}  // namespace
}  // namespace zeno::plan
