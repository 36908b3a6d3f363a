#include "zeno/report/page/report_timeline.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace zeno::report {
namespace {

using zero::Forward;
using zero::Gather;
using zero::Lane;
using zero::Reduce;

// gather a | forward a | gather b | forward b (waits for its gather) | reduce b
struct Example {
  zero::Program program;
  zero::UnitTable units;
  std::vector<zero::InstructionTime> times;

  Example() {
    units.unit_names = {"a", "b"};
    add(Gather{}, Lane::gather, 0, {}, {1000, 1000, 3000});
    add(Forward{}, Lane::compute, 0, {0}, {1000, 3000, 6000});
    add(Gather{}, Lane::gather, 1, {}, {3000, 3000, 7500});
    add(Forward{}, Lane::compute, 1, {0, 2}, {6000, 7500, 9000});
    add(Reduce{}, Lane::reduce, 1, {3}, {1000, 9000, 11000});
  }
  void add(zero::Action action, Lane lane, int unit, std::vector<int> waits, zero::InstructionTime time) {
    zero::Instruction in;
    in.action = std::move(action);
    in.lane = lane;
    in.unit = unit;
    in.waits = std::move(waits);
    program.instructions.push_back(std::move(in));
    times.push_back(time);
  }
};

TEST(ReportTimeline, SpansCountFromTheBeginningOfTheStep) {
  const Example example;
  const Timeline timeline = timeline_of(example.program, example.units, example.times);
  EXPECT_EQ(timeline.lanes, (std::vector<std::string>{"compute", "gather", "reduce"}));
  EXPECT_EQ(timeline.duration_ms, 10);
  ASSERT_EQ(timeline.spans.size(), 5u);
  EXPECT_EQ(timeline.spans[1].lane, "compute");
  EXPECT_EQ(timeline.spans[1].name, "forward b");
  EXPECT_EQ(timeline.spans[1].begin_ms, 6.5);
  EXPECT_EQ(timeline.spans[1].end_ms, 8);
  EXPECT_EQ(timeline.spans[4].lane, "reduce");
}

TEST(ReportTimeline, WaitsOfComputationAreExposedCommunication) {
  const Example example;
  const Timeline timeline = timeline_of(example.program, example.units, example.times);
  ASSERT_EQ(timeline.waits.size(), 2u);
  EXPECT_EQ(timeline.waits[0].name, "waits for gather a g0[0..0)");
  EXPECT_EQ(timeline.waits[1].name,
            "waits for gather b g0[0..0)");  // of two gathers, the one that ended last
  EXPECT_EQ(timeline.waits[1].begin_ms, 5);
  EXPECT_EQ(timeline.waits[1].end_ms, 6.5);
  EXPECT_DOUBLE_EQ(timeline.exposed_ms(), 3.5);  // the reduction's own wait is not the computation's
}

TEST(ReportTimeline, AStepThatWasNotTimedIsEmpty) {
  const Example example;
  EXPECT_TRUE(timeline_of(example.program, example.units, {}).spans.empty());
  test::expect_error(ErrorKind::internal, {"1 times", "5 instructions"},
                     [&] { timeline_of(example.program, example.units, std::span(example.times).first(1)); });
}

// Lanes of the host beside a GPU.
TEST(ReportTimeline, InstructionsWithoutTimesDoNotMoveTheBeginning) {
  Example example;
  example.add(zero::Read{}, Lane::read, 0, {}, {});
  EXPECT_EQ(timeline_of(example.program, example.units, example.times).duration_ms, 10);
}

TEST(ReportTimeline, ManyNarrowSpansBecomeFew) {
  std::vector<TimelineSpan> spans;
  for (int i = 0; i < 30'000; ++i) spans.push_back({"compute", "tiny", i * 0.001, (i + 1) * 0.001});
  spans.push_back({"compute", "wide", 30, 60});
  spans.push_back({"gather", "g", 0, 0.001});
  const auto merged = merge_narrow(spans, 60, 1000);
  EXPECT_LE(merged.size(), 1100u);
  EXPECT_GE(merged.size(), 400u);
  EXPECT_EQ(merged.front().begin_ms, 0);
  EXPECT_EQ(merged.back().lane, "gather");
  EXPECT_EQ(merged[merged.size() - 2].name, "wide");
  for (size_t i = 1; i + 1 < merged.size(); ++i) EXPECT_GE(merged[i].begin_ms, merged[i - 1].end_ms - 1e-9);
}

}  // namespace
}  // namespace zeno::report
