// Ctrl-C, SIGTERM and SIGUSR1 as a wish to stop (mpirun and Slurm pass the last one on to all processes).
// While an Interrupt lives, the first of each sets a flag that ranks look at between steps; the same signal
// again ends the process at once. Signals that were ignored stay ignored.
//
// One at a time per process; ranks that are threads share it. requested() may be called from any thread.
#pragma once

#include <csignal>

#include <array>

namespace zeno::train {

class Interrupt {
 public:
  Interrupt();
  ~Interrupt();  // puts the former handlers back
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static bool requested();

 private:
  static constexpr std::array<int, 3> kSignals{SIGINT, SIGTERM, SIGUSR1};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace zeno::train
