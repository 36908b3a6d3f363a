// Shows the progress of building a dataset cache, and lets the user stop it. progress.h does the same for
// steps.
#pragma once

#include <chrono>
#include <string>

#include "zeno/data/dataset/prepare.h"
#include "zeno/report/status_line.h"

namespace zeno::train {

// `seconds` since the build began.
std::string build_plain_line(const data::BuildState& state, double seconds);
std::string build_bar_line(const data::BuildState& state, double seconds, int width);

// Used by one thread: the one that builds.
class BuildDisplay {
 public:
  using Clock = std::chrono::steady_clock;

  explicit BuildDisplay(int fd) : line_(fd) {}
  // A state with fewer bytes than the previous one is of another dataset.
  void update(const data::BuildState& state, Clock::time_point now = Clock::now());

 private:
  report::StatusLine line_;
  uint64_t bytes_ = 0;
  Clock::time_point begin_ = Clock::now(), last_line_ = begin_;
};

// For open_run_data: rank 0 shows the build on stderr, and Ctrl-C ends it on any rank (see interrupt.h) with
// an Error(usage).
data::BuildProgress build_progress(int rank);

}  // namespace zeno::train
