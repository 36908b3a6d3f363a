// Signals during a run. Ctrl-C, SIGTERM, SIGHUP (a lost terminal) and SIGUSR1, which mpirun and Slurm pass on
// to all processes, are requests to stop: each sets a flag that ranks check between steps. If several of the
// first three arrive within one second, they count as one request: Slurm sends SIGTERM twice within
// milliseconds, and a terminal signals the whole process group. A later one ends the process at once, except
// while the clock of --save-deadline runs: saving always gets that time. SIGUSR1, which schedulers send long
// before the end, starts no clock and never ends the process. SIGUSR2 requests a checkpoint. Signals that
// were ignored stay ignored. After the run, SIGUSR1 and SIGUSR2 do nothing: a late request must not kill a
// process that has saved everything.
//
// At most one per process; ranks that are threads share it. The static functions may be called from any
// thread.
#pragma once

#include <csignal>

#include <array>
#include <chrono>
#include <cstdint>
#include <thread>

namespace zeno::train {

// Exit code of a process that had not saved everything by the deadline.
inline constexpr int kSaveDeadlineExit = 7;

// Requests to stop that are closer together than this count as one.
inline constexpr std::chrono::milliseconds kSameWish{1000};

class Interrupt {
 public:
  // After SIGINT, SIGTERM or SIGHUP the process has `save_deadline_s` seconds to end; after that it says so
  // and exits, whatever it is waiting for. 0: no limit.
  explicit Interrupt(int64_t save_deadline_s = 0);
  ~Interrupt();  // restores the previous handlers of the others
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static bool requested();
  // True once per request (several before the call count as one).
  static bool take_save_request();

 private:
  static constexpr std::array<int, 5> kSignals{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  std::array<struct sigaction, kSignals.size()> before_{};
  std::thread clock_;  // of --save-deadline
};

}  // namespace zeno::train
