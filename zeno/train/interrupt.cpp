#include "zeno/train/interrupt.h"

#include <semaphore.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "zeno/base/leave_files.h"
#include "zeno/base/log.h"
#include "zeno/base/thread.h"
#include "zeno/base/within.h"

namespace zeno::train {
namespace {

// A signal handler may use only global, lock-free variables.
std::atomic<bool> stop_requested{false}, save_requested{false}, has_clock{false}, over{false};
std::atomic<int64_t> last_stop_ms{0};  // 0: none yet
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);
sem_t clock_wake;  // posted when the clock starts or the run is over

timespec now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now;
}

void on_signal(int signal) {
  if (signal == SIGUSR2) {
    save_requested = true;
    return;
  }
  stop_requested = true;
  // Only an early warning, which does not count as the first signal.
  if (signal == SIGUSR1) return;
  if (has_clock) sem_post(&clock_wake);
  const timespec time = now();
  const int64_t ms = int64_t(time.tv_sec) * 1000 + time.tv_nsec / 1'000'000;
  const int64_t last = last_stop_ms.exchange(ms);
  if (last == 0 || ms - last < kSameWish.count() || has_clock) return;
  std::signal(signal, SIG_DFL);
  raise(signal);  // delivered when this handler returns
}

// Not SIG_IGN: the next Interrupt is to handle it again.
void on_late_request(int) {}

// Prints from another thread, because the log may be on the disk that saving hangs on.
[[noreturn]] void give_up_saving() {
  constexpr auto kMoment = std::chrono::seconds(1);
  leave_files_behind();
  try {
    finishes_within(kMoment, [] {
      log_error(
          "[train] --save-deadline: time ran out before everything was saved; resume from the newest "
          "complete checkpoint with --resume auto");
    });
  } catch (...) {  // no thread to print it
  }
  _exit(kSaveDeadlineExit);
}

// A thread and not alarm(), whose signal goes to the main thread first, which may be stuck in a disk
// operation.
void run_clock(int64_t save_deadline_s) {
  while (sem_wait(&clock_wake) != 0) {
  }
  timespec end = now();
  end.tv_sec += time_t(save_deadline_s);
  while (!over) {
    if (sem_clockwait(&clock_wake, CLOCK_MONOTONIC, &end) != 0 && errno == ETIMEDOUT) give_up_saving();
  }
}

}  // namespace

Interrupt::Interrupt(int64_t save_deadline_s) {
  stop_requested = save_requested = over = false;
  last_stop_ms = 0;
  has_clock = save_deadline_s > 0;
  if (has_clock) {
    sem_init(&clock_wake, 0, 0);
    clock_ = start_thread([=] { run_clock(save_deadline_s); });
  }
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
  // A SIGTERM that arrived just before, for which run_mpi_rank()'s handler has set a timer.
  if (alarm(0) > 0) stop_requested = true;
}

Interrupt::~Interrupt() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction& action = before_[i];
    const bool only_requests = kSignals[i] == SIGUSR1 || kSignals[i] == SIGUSR2;
    if (only_requests && action.sa_handler == SIG_DFL) action.sa_handler = on_late_request;
    sigaction(kSignals[i], &action, nullptr);
  }
  if (!has_clock) return;
  over = true;
  sem_post(&clock_wake);
  clock_.join();
}

bool Interrupt::requested() { return stop_requested; }
bool Interrupt::take_save_request() { return save_requested.exchange(false); }

}  // namespace zeno::train
