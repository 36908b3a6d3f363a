// Signals while a run lives. Ctrl-C, SIGTERM, SIGHUP (a lost terminal) and SIGUSR1 are requests to stop
// (mpirun and Slurm pass the last one on to all processes): each sets a flag that ranks look at between
// steps. Of the first three, those that follow within one second count as the same request: Slurm sends
// SIGTERM twice within milliseconds, a terminal to the whole group. One that comes later ends the process at
// once, but not while the clock of --save-deadline runs: then saving has that time, whatever comes. SIGUSR1,
// which schedulers send long before the end, starts no clock and never ends the process. SIGUSR2 requests a
// checkpoint. Signals that were ignored stay ignored.
//
// One at a time per process; ranks that are threads share it. The questions may be asked from any thread.
#pragma once

#include <csignal>

#include <array>
#include <chrono>
#include <cstdint>
#include <thread>

namespace zeno::train {

// Exit code of a process that had not saved everything when the deadline passed.
inline constexpr int kSaveDeadlineExit = 7;

// Signals to stop that are closer together count as one request.
inline constexpr std::chrono::milliseconds kSameWish{1000};

class Interrupt {
 public:
  // After SIGINT, SIGTERM or SIGHUP the process has `save_deadline_s` seconds to end; then it says so and
  // leaves, whatever it hangs in. 0: as long as it takes.
  explicit Interrupt(int64_t save_deadline_s = 0);
  ~Interrupt();  // puts the former handlers back
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
