// Progress of a run for a human: in a terminal one line redrawn in place, in a file or pipe a plain line now
// and then. The formatting is pure; Progress writes to a descriptor that the command line owns. For one
// thread.
#pragma once

#include <cstdint>
#include <string>

#include "zeno/report/metrics.h"
#include "zeno/report/status_line.h"

namespace zeno::report {

struct ProgressState {
  int64_t step = 0, total = 0;
  double loss = 0, lr = 0, tokens_per_s = 0;
  uint64_t memory = 0;  // peak bytes of a rank
  double eta_s = 0;
  bool skipped = false;
};

std::string format_rate(double per_s);        // 950, 12.3k, 1.20M
std::string format_duration(double seconds);  // 0:07, 12:34, 3:04:05, 2d 03:04
std::string plain_line(const ProgressState& state);
std::string bar_line(const ProgressState& state, int width);
// Is `step` (counted from 1) one of those printed to a file? First, last and every `every`; 0: about every 5
// %.
bool prints_at(int64_t step, int64_t total, int64_t every);

class Progress {
 public:
  // `every`: steps between plain lines (steps_per_print), 0 for about every 5 %.
  Progress(int fd, int64_t total_steps, int64_t every) : line_(fd), total_(total_steps), every_(every) {}

  // After each step.
  void update(const StepRecord& record);
  // Ends the redrawn line, so that other output can follow.
  void finish() { line_.finish(); }

 private:
  StatusLine line_;
  int64_t total_, every_;
  double mean_step_ms_ = 0;
};

}  // namespace zeno::report
