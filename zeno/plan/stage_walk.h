// One stage's program on its way through time: lanes are in-order queues, instructions wait as the program
// says, and those that use the same part of the machine share it. timeline.cpp moves all stages on together
// and says when what comes from other stages is there.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "zeno/plan/timeline.h"

namespace zeno::plan {

// An instruction of one of the steps.
struct Turn {
  int step = 0, index = -1;
};

class StageWalk {
 public:
  // Both outlive the walk.
  StageWalk(const zero::CompiledStep& step, std::span<const Cost> costs);

  // Has it all that it needs of other stages?
  template <class Arrived>
  void start(double now, const Arrived& arrived);
  // When the first of what runs ends, from now on; infinity: nothing runs.
  double next_end() const;
  // Time passes.
  void pass(double seconds, double now);

  // Of the compute lane.
  int step() const { return compute().step; }
  // Has an instruction all that it needs of its own stage? Has it ended?
  bool is_ready(Turn turn) const { return known(turn) && times(turn).ready >= 0; }
  bool has_ended(Turn turn) const { return known(turn) && times(turn).end >= 0; }
  // Seconds that the compute lane computes in a step.
  double work() const;

  // What follows belongs to a new step; what `step` came to, which began at `begin`.
  void clear();
  StepTime summary(int step, double begin, double now) const;

 private:
  struct LaneState {
    std::vector<int> queue;
    int step = 0;
    size_t at = 0;  // in the queue
    bool running = false;
    double left = 0;           // seconds, alone
    Turn before{.index = -1};  // what it ran last
    double idle_since = 0;
  };
  struct Times {
    double ready = -1, start = 0, end = -1;  // ready: but for what it waits for in other stages
    Turn cause;                              // what ended last of all it waited for in its own
  };

  LaneState& compute() { return lanes_[size_t(zero::Lane::compute)]; }
  const LaneState& compute() const { return lanes_[size_t(zero::Lane::compute)]; }
  Turn head(const LaneState& lane) const { return {lane.step, lane.queue[lane.at]}; }
  bool known(Turn turn) const { return turn.step < int(times_.size()); }
  Times& times(Turn turn) { return times_[size_t(turn.step)][size_t(turn.index)]; }
  const Times& times(Turn turn) const { return times_[size_t(turn.step)][size_t(turn.index)]; }
  const Cost& cost(Turn turn) const { return costs_[size_t(turn.index)]; }
  bool computes(int index) const;
  std::array<int, kResources> sharers() const;
  bool make_ready(const LaneState& lane, double now);
  void run(LaneState& lane, double now);
  void finish(LaneState& lane, double now);
  void blame(Turn turn, double from, double to);
  void account(double seconds, const std::array<int, kResources>& sharing);

  const std::vector<zero::Instruction>& list_;
  const zero::UnitTable& units_;
  const std::span<const Cost> costs_;
  std::array<LaneState, zero::kLanes> lanes_;
  std::vector<std::vector<Times>> times_;  // by step
  // Seconds that the compute lane waited in this step, by instruction: for it, and in it for other stages.
  std::vector<double> exposed_, abroad_;
  StepTime time_;  // of this step so far
};

template <class Arrived>
void StageWalk::start(double now, const Arrived& arrived) {
  for (LaneState& lane : lanes_) {
    if (lane.running || lane.queue.empty() || !make_ready(lane, now)) continue;
    if (arrived(head(lane))) run(lane, now);
  }
}

}  // namespace zeno::plan
