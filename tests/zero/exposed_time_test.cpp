#include "zeno/zero/exposed_time.h"

#include <gtest/gtest.h>

#include <utility>

namespace zeno::zero {
namespace {

constexpr comm::Axes kInner{comm::Axis::inner};

// A program with the times of one run of it.
struct TimedStep {
  Program program;
  std::vector<InstructionTime> times;

  // Times in microseconds; returns its index.
  int add(Action action, Lane lane, std::vector<int> waits, InstructionTime time,
          std::vector<int> carried = {}) {
    Instruction in{.action = std::move(action), .lane = lane};
    in.waits = std::move(waits);
    in.carried = std::move(carried);
    program.instructions.push_back(std::move(in));
    times.push_back(time);
    return int(times.size()) - 1;
  }
  StepTimes measure() const {
    ExposedTime exposed(program);
    const StepTimes step = exposed.add([&](int i) { return times[size_t(i)]; });
    double sum = 0;
    for (double ms : exposed.by_instruction()) sum += ms;
    EXPECT_NEAR(sum, step.exposed(), 1e-9);
    return step;
  }
};

TEST(ExposedTime, AWaitForAGatherIsCommunication) {
  TimedStep run;
  const int gather = run.add(Gather{kInner}, Lane::gather, {}, {1000, 1000, 4000});
  run.add(Forward{}, Lane::compute, {gather}, {1000, 4000, 9000});
  const StepTimes step = run.measure();
  EXPECT_DOUBLE_EQ(step.communication, 3);
  EXPECT_DOUBLE_EQ(step.compute, 5);
  EXPECT_DOUBLE_EQ(step.exposed(), 3);
}

TEST(ExposedTime, OnlyWhatIsLeftWhenComputationArrivesIsExposed) {
  TimedStep run;
  const int gather = run.add(Gather{kInner}, Lane::gather, {}, {1000, 1000, 4000});
  run.add(Forward{}, Lane::compute, {}, {1000, 1000, 3500});
  run.add(Forward{}, Lane::compute, {gather}, {3500, 4000, 6000});
  const StepTimes step = run.measure();
  EXPECT_DOUBLE_EQ(step.communication, 0.5);
  EXPECT_DOUBLE_EQ(step.compute, 4.5);
}

// Disk 1..5 ms, host to device 5..6, gather 6..8: computation stands still from 2 on.
TEST(ExposedTime, AWaitIsFollowedBackToWhatItWasFor) {
  TimedStep run;
  const int read = run.add(Read{}, Lane::read, {}, {1000, 1000, 5000});
  const int fetch = run.add(Fetch{}, Lane::gather, {read}, {1000, 5000, 6000});
  const int gather = run.add(Gather{kInner}, Lane::gather, {}, {6000, 6000, 8000});
  (void)fetch;  // before the gather on its lane
  run.add(Forward{}, Lane::compute, {}, {1000, 1000, 2000});
  run.add(Forward{}, Lane::compute, {gather}, {2000, 8000, 9000});
  const StepTimes step = run.measure();
  EXPECT_DOUBLE_EQ(step.disk, 3);
  EXPECT_DOUBLE_EQ(step.link, 1);
  EXPECT_DOUBLE_EQ(step.communication, 2);
  EXPECT_DOUBLE_EQ(step.compute, 2);
}

// The update of the step before, which waited for its states to be read.
TEST(ExposedTime, AWaitForTheStepBeforeIsForWhatThatStepMoved) {
  TimedStep run;
  run.add(Forward{}, Lane::compute, {}, {1000, 4000, 5000}, {2});
  const int read = run.add(Read{}, Lane::read, {}, {1000, 1000, 9000});
  run.add(Update{}, Lane::update, {read}, {1000, 9000, 9500});
  EXPECT_DOUBLE_EQ(run.measure().disk, 3);
}

// A GPU's clock does not time lanes of the host.
TEST(ExposedTime, ALaneWithoutTimesTakesWhatOthersDoNotExplain) {
  TimedStep run;
  const int read = run.add(Read{}, Lane::read, {}, {});
  const int fetch = run.add(Fetch{}, Lane::fetch, {read}, {1000, 6000, 7000});
  run.add(Update{}, Lane::compute, {fetch}, {2000, 7000, 8000});
  const StepTimes step = run.measure();
  EXPECT_DOUBLE_EQ(step.disk, 4);
  EXPECT_DOUBLE_EQ(step.link, 1);
}

TEST(ExposedTime, WithoutOverlapCommunicationIsExposedInFull) {
  TimedStep run;
  run.add(Gather{kInner}, Lane::compute, {}, {1000, 1000, 2000});
  run.add(Forward{}, Lane::compute, {}, {2000, 2000, 5000});
  run.add(Norm{kInner}, Lane::compute, {}, {5000, 5000, 5500});
  EXPECT_DOUBLE_EQ(run.measure().communication, 1.5);
  EXPECT_DOUBLE_EQ(run.measure().compute, 3);
}

TEST(ExposedTime, OneRankHasNobodyToWaitFor) {
  TimedStep run;
  run.add(Norm{}, Lane::compute, {}, {1000, 1000, 2000});
  EXPECT_DOUBLE_EQ(run.measure().exposed(), 0);
}

}  // namespace
}  // namespace zeno::zero
