// Finds what slows a run down from its steps: plain state machines over observations of each step. No clocks
// and no files here; trouble_text.h says what to do about it. Rank 0 has one; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "zeno/zero/engine.h"

namespace zeno::report {

// How one step went; times in milliseconds.
struct Observation {
  double step_ms = 0;
  // The rank with the most work: the others wait for it, so its time is the step's.
  int slowest = 0;
  zero::RankTimes spent;  // by that rank; for a step that was not timed, only `data` is known
  double others_ms = 0;   // median of the other ranks' work; 0: there are none
  double loss_scale = 1;
  bool skipped = false;
  bool saving = false;  // a checkpoint was being written meanwhile
  double saved_ms = 0;  // wait before the step to start a save

  bool timed() const { return spent.compute > 0; }
};

// From what every rank reported about a step.
Observation observe(std::span<const zero::RankTimes> ranks);

enum class TroubleKind { communication, link, disk, data, slow_rank, loss_scale, checkpoint };
inline constexpr int kTroubles = int(TroubleKind::checkpoint) + 1;

struct Trouble {
  TroubleKind kind = TroubleKind::communication;
  double share = 0;   // of the step, or of the steps
  int64_t steps = 0;  // looked at
  int rank = 0;       // slow_rank: which
  double ratio = 0;   // slow_rank: times what the others have to do
  // slow_rank: what keeps it: compute, or one of the kinds above
  enum class Part { compute, link, disk, data } part = Part::compute;
  int64_t skipped = 0;  // loss_scale
  double scale = 1;     // loss_scale: now
};

// Sums over steps. How the time of a step was spent is known of those that were timed: all of them on a CPU,
// a sample on GPUs, which represents the others.
struct TroubleSums {
  int64_t steps = 0, timed_steps = 0;
  double step_ms = 0, timed_ms = 0;
  double data = 0;
  double compute = 0, communication = 0, link = 0, disk = 0, other = 0;  // of timed steps
  struct Slow {
    int64_t steps = 0;
    double own = 0, others = 0, link = 0, disk = 0, data = 0;
  };
  std::map<int, Slow> slowest;  // by rank: the timed steps that waited for it

  void add(const Observation& o);
  double share(double ms) const { return step_ms > 0 ? ms / step_ms : 0; }
  double timed_share(double ms) const { return timed_ms > 0 ? ms / timed_ms : 0; }
};

class Troubles {
 public:
  static constexpr int64_t kWarmUp = 3;  // first steps, which touch memory and files for the first time
  // The size of a window: a number of timed steps, and a total of their time, so that a hiccup of short steps
  // does not count.
  static constexpr int64_t kWindow = 20;
  static constexpr double kWindowMs = 1000;
  // The threshold as a share of the step; a trouble ends below half of it.
  static constexpr std::array<double, kTroubles> kLimits{0.15, 0.15, 0.15, 0.10, 0.10, 0.25, 0.10};
  static constexpr double kSlow = 1.2;      // times the others
  static constexpr double kAlways = 0.8;    // of the steps wait for the same rank
  static constexpr double kTinyScale = 16;  // a loss scale that fell so far hides small gradients

  // Takes the next step and returns what to report now: a trouble when it begins, and again when it gets
  // worse by half or moves to another rank, at most once per window.
  std::vector<Trouble> look(const Observation& step);
  // What was wrong over the whole run, worst first.
  std::vector<Trouble> all() const;

  const TroubleSums& total() const { return total_; }
  // Enough steps to judge the run.
  bool sure() const { return whole(total_); }

 private:
  struct Told {
    bool open = false;
    double share = 0;
    int rank = 0;
    int64_t at = 0;
  };
  using Measures = std::array<Trouble, kTroubles>;

  static bool whole(const TroubleSums& sums) {
    return sums.timed_steps >= kWindow && sums.timed_ms >= kWindowMs;
  }
  Measures measure(const TroubleSums& sums) const;
  Trouble scale_trouble() const;
  Trouble save_trouble() const;
  bool tells(const Trouble& now);

  int64_t seen_ = 0;
  TroubleSums window_, total_;  // since the last verdict; of the run, without warm-up
  std::deque<bool> skips_;      // the last kWindow steps, warm-up included
  int64_t skipped_ = 0;
  double first_scale_ = 0, scale_ = 1;
  int64_t saves_ = 0, saving_steps_ = 0;
  double saved_ms_ = 0, saving_ms_ = 0, free_ms_ = 0;  // standing still; steps while one is written; others
  std::array<Told, kTroubles> told_;
};

}  // namespace zeno::report
