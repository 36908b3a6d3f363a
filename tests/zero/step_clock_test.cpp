#include "zeno/zero/step_clock.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/homes.h"
#include "tests/support/temp_dir.h"

namespace zeno::zero {
namespace {

using test::run_threads;
using test::RunResult;
using test::RunSpec;

TEST(StepClock, SamplesComeSoonThenSeldom) {
  int first = 0, later = 0;
  for (int64_t step = 0; step < kFirstSample + kSamplesInARow; ++step)
    first += is_timed(Timing::sampled, step);
  EXPECT_EQ(first, kSamplesInARow);
  EXPECT_FALSE(is_timed(Timing::sampled, 0));
  for (int64_t step = 1000; step < 2000; ++step) later += is_timed(Timing::sampled, step);
  EXPECT_GT(later, 85);
  EXPECT_LT(later, 100);
  EXPECT_TRUE(is_timed(Timing::every, 0));
  EXPECT_FALSE(is_timed(Timing::none, 5));
}

void rest(StreamRef lane, int ms) {
  lane.launch([ms](Workers&) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); });
}

// A gather and the computation that waits for it, on two lanes.
struct TwoLanes {
  Program program;
  Stream compute{StreamOptions{.device = {}, .name = "compute"}};
  Stream gather{StreamOptions{.device = {}, .name = "gather"}};

  TwoLanes() {
    program.instructions.push_back(
        {.action = Gather{{comm::Axis::inner}}, .lane = Lane::gather, .signals = true});
    program.instructions.push_back({.action = Forward{}, .lane = Lane::compute, .waits = {0}});
  }
  void queue(StepClock& clock, int slot, int gather_ms, int compute_ms) {
    const int set = clock.begin(slot, compute);
    Event gathered;
    clock.reach(set, 0, gather);
    clock.start(set, 0, gather);
    rest(gather, gather_ms);
    clock.finish(set, 0, gather);
    gathered.record(gather);
    clock.reach(set, 1, compute);
    compute.ref().wait(gathered);
    clock.start(set, 1, compute);
    rest(compute, compute_ms);
    clock.finish(set, 1, compute);
    clock.end(set, compute);
  }
};

// The second one is queued before the first is read.
TEST(StepClock, StepsUnderWayTogetherHaveTimesOfTheirOwn) {
  TwoLanes lanes;
  StepClock clock(lanes.program, {.ranks = 2, .lanes = 2, .depth = 2, .timing = Timing::every});
  lanes.queue(clock, 0, 30, 40);
  lanes.queue(clock, 1, 5, 80);  // its gather is over before the first computation is
  lanes.compute.synchronize();
  const std::optional<StepTimes> first = clock.read(0), second = clock.read(1);
  ASSERT_TRUE(first && second);
  EXPECT_GE(first->communication, 25);
  EXPECT_GE(first->compute, 39.9);
  EXPECT_LT(second->communication, 20);
  EXPECT_GE(second->compute, 79.9);
  EXPECT_EQ(clock.times().size(), 2u);
  EXPECT_GE(clock.times()[1].end - clock.times()[1].start, 79'900);
}

TEST(StepClock, OneLaneIsSampledFromOutside) {
  Program program;
  program.instructions.push_back({.action = Forward{}});
  Stream compute{StreamOptions{.device = {}, .name = "compute"}};
  StepClock clock(program, {.depth = 2, .timing = Timing::sampled});
  for (int64_t step = 0; step <= kFirstSample; ++step) {
    const int slot = int(step % 2);
    const int set = clock.begin(slot, compute);
    rest(compute, 10);  // a graph, say: nothing is marked in it
    clock.end(set, compute);
    compute.synchronize();
    const std::optional<StepTimes> times = clock.read(slot);
    ASSERT_EQ(times.has_value(), step == kFirstSample) << step;
    if (!times) continue;
    EXPECT_GE(times->compute, 9.9);
    EXPECT_EQ(times->exposed(), 0);
  }
  EXPECT_TRUE(clock.times().empty());
  clock.skip(0);
  EXPECT_FALSE(clock.read(0));
}

// Two steps at a time, as on a GPU. Which of them have times, and what came out.
struct LateRun {
  std::vector<std::vector<bool>> timed;  // by rank and step
  std::vector<double> losses;
};

LateRun run_late(const RunSpec& spec) {
  LateRun run;
  run.timed.resize(size_t(spec.world));
  comm::run_thread_ranks(spec.world, {.deadline = std::chrono::seconds(20)}, [&](comm::World& world) {
    Engine engine(test::model_of(spec), test::options_of(spec), world);
    engine.load(spec.values);
    const auto collect = [&] {
      const StepResult result = engine.collect();
      run.timed[size_t(world.rank())].push_back(result.times.has_value());
      EXPECT_TRUE(!result.times || result.times->compute > 0);
      if (world.rank() == 0) run.losses.push_back(result.loss);
    };
    for (int step = 0; step < spec.steps; ++step) {
      const test::OwnedBatch batch = test::make_batch(spec.batch, spec.shape.vocab, step, world.rank());
      const std::vector<MicroBatch> views{batch.view()};
      engine.submit(views, {.hyper = {.lr = 1e-2f, .step = step + 1}, .clip = 1});
      if (step > 0) collect();
    }
    collect();
  });
  return run;
}

// Wherever states are kept: lanes that bring them are queued by threads that may be a step behind.
TEST(StepClock, AllRanksTimeTheSameStepsAndTheBitsStay) {
  const test::TempDir folder;
  std::optional<std::vector<double>> losses;
  for (Tier home : kTiers) {
    RunSpec spec;
    spec.world = 2;
    spec.steps = 36;
    apply_stage(spec.policy, 3);
    test::Homes{home, Tier::device, true}.set(spec, folder.path());
    spec.timing = Timing::none;
    const LateRun plain = run_late(spec);
    spec.timing = Timing::sampled;
    const LateRun sampled = run_late(spec);
    if (!losses) losses = plain.losses;
    EXPECT_EQ(plain.losses, *losses) << name_of(home);
    EXPECT_EQ(sampled.losses, *losses) << name_of(home);
    EXPECT_EQ(sampled.timed[0], sampled.timed[1]);
    for (int step = 0; step < spec.steps; ++step) {
      EXPECT_FALSE(plain.timed[0][size_t(step)]);
      EXPECT_EQ(sampled.timed[0][size_t(step)], is_timed(Timing::sampled, step)) << step;
    }
  }
}

}  // namespace
}  // namespace zeno::zero
