#include "zeno/train/interrupt.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <string_view>

namespace zeno::train {
namespace {

// What a signal handler may touch has to be global and lock-free.
std::atomic<bool> stop_requested{false}, save_requested{false}, insisted{false}, clock_runs{false};
std::atomic<unsigned> deadline_s{0};
std::atomic<int64_t> last_stop_ms{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<unsigned>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free);

int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

void start_clock() {
  if (deadline_s > 0 && !clock_runs.exchange(true)) alarm(deadline_s);
}

void on_signal(int signal) {
  if (signal == SIGUSR2) {
    save_requested = true;
    return;
  }
  stop_requested = true;
  // Comes early, from somebody who knows when the end will be: what follows is the first of the others.
  if (signal == SIGUSR1) return;
  const int64_t now = now_ms(), since_last = now - last_stop_ms.exchange(now);
  start_clock();
  if (!insisted.exchange(true) || since_last < kSameWish.count() || clock_runs) return;
  std::signal(signal, SIG_DFL);
  raise(signal);  // comes when this handler returns
}

// A timer of the system, not a thread: it works while every thread hangs in a disk or a device.
void on_deadline(int) {
  constexpr std::string_view kText =
      "error: [train] --save-deadline: the time is over and not everything is saved; checkpoints with a "
      "manifest are whole: resume with --resume auto\n";
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, kText.data(), kText.size());
  _exit(kSaveDeadlineExit);
}

}  // namespace

Interrupt::Interrupt(int64_t save_deadline_s) {
  stop_requested = save_requested = insisted = clock_runs = false;
  deadline_s = unsigned(save_deadline_s);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    const int signal = kSignals[i];
    struct sigaction action {};
    action.sa_handler = signal == SIGALRM ? on_deadline : on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(signal, nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

Interrupt::~Interrupt() {
  if (deadline_s > 0) alarm(0);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

bool Interrupt::requested() { return stop_requested; }
bool Interrupt::take_save_request() { return save_requested.exchange(false); }

}  // namespace zeno::train
