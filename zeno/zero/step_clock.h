// Times the steps of an executor: marks are put on its lanes while a step is queued, and read once that step
// has been waited for, so nothing here waits for the device. On a GPU only a sample of the steps is timed,
// because each mark costs the lane a microsecond or two; all ranks time the same steps.
//
// With one lane and one rank there are no waits to time. Such steps are timed as a whole, from outside, so
// that they can be replayed as graphs. Thread rule: that of the executor.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "zeno/device/stopwatch.h"
#include "zeno/zero/exposed_time.h"
#include "zeno/zero/program/program.h"

namespace zeno::zero {

enum class Timing { none, sampled, every };

// Sampled steps: some in a row after warm-up, for early results, then so few that timing costs less than 1 %
// even if it slows a step down by 10 %. The interval is a prime, so that it does not coincide with saving and
// evaluation.
inline constexpr int64_t kFirstSample = 3, kSamplesInARow = 20, kSampleEvery = 11;
constexpr bool is_timed(Timing timing, int64_t step) {
  if (timing != Timing::sampled) return timing == Timing::every;
  if (step < kFirstSample) return false;
  return step < kFirstSample + kSamplesInARow || step % kSampleEvery == 0;
}

class StepClock {
 public:
  struct Options {
    Device device;
    int ranks = 1, lanes = 1;
    int depth = 1;  // steps in progress at once
    Timing timing = Timing::none;
  };
  static constexpr int kNone = -1;  // no set of marks: the step is not timed

  StepClock(const Program& program, const Options& options);

  // A step is queued between these two; `slot` < depth names it until it is read. Its set of marks is what
  // begin() returns.
  int begin(int slot, StreamRef compute);
  void end(int set, StreamRef compute);
  // Instead of both, for a step that is never timed.
  int skip(int slot) { return sets_[size_t(slot)] = kNone; }
  // For instruction `i` of the step: its lane reaches it, has waited for what it needs, is done with it.
  // Lanes may be queued by different threads.
  void reach(int set, size_t i, StreamRef lane);
  void start(int set, size_t i, StreamRef lane);
  void finish(int set, size_t i, StreamRef lane);

  // How the compute lane spent the step, once that lane is done with it; nothing if it was not timed.
  std::optional<StepTimes> read(int slot);
  // Times of the last step timed by instruction, once all lanes are done; empty if there was none.
  std::vector<InstructionTime> times() const;
  // How long computation waited for each instruction, over the steps read, in milliseconds.
  std::span<const double> waited_for() const { return exposed_.by_instruction(); }

 private:
  // A GPU's clock cannot time lanes of the host.
  bool marks(int set, Device lane) const {
    return set != kNone && !whole_ && lane.kind == options_.device.kind;
  }
  size_t index(int set, size_t mark) const { return size_t(set) * set_marks_ + mark; }
  size_t place(int set, size_t i) const { return size_t(set) * known_.size() + i; }
  InstructionTime time_of(int set, size_t i, double begin_us) const;

  Options options_;
  bool whole_;  // steps are timed as a whole, from outside
  size_t set_marks_;
  std::unique_ptr<Stopwatch> stopwatch_;
  std::vector<double> queueing_us_;  // by place(): time of the host from reach to start
  std::vector<int> sets_;            // by slot: the step's set of marks
  int64_t steps_ = 0, timed_ = 0;    // timed steps take the sets in turn
  ExposedTime exposed_;
  std::vector<std::optional<InstructionTime>> known_;  // of the step being read
};

}  // namespace zeno::zero
