// Signals while a run lives. Ctrl-C, SIGTERM, SIGHUP (a terminal that is gone) and SIGUSR1 are a wish to stop
// (mpirun and Slurm pass the last one on to all processes): the first of each sets a flag that ranks look at
// between steps; the same signal again ends the process at once. SIGUSR2 is a wish for a checkpoint. Signals
// that were ignored stay ignored.
//
// One at a time per process; ranks that are threads share it. The questions may be asked from any thread.
#pragma once

#include <csignal>

#include <array>
#include <cstdint>

namespace zeno::train {

// Exit code of a process that had not saved everything when the deadline after SIGTERM came.
inline constexpr int kSaveDeadlineExit = 7;

class Interrupt {
 public:
  // After SIGTERM the process has `save_deadline_s` seconds to end; then it says so and leaves, whatever it
  // hangs in. 0: as long as it takes.
  explicit Interrupt(int64_t save_deadline_s = 0);
  ~Interrupt();  // puts the former handlers back
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static bool requested();
  // True once for each wish (several before it is asked count as one).
  static bool take_save_request();

 private:
  static constexpr std::array<int, 6> kSignals{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace zeno::train
