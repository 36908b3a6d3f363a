#include "zeno/train/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <string_view>

namespace zeno::train {
namespace {

// What a signal handler may touch has to be global and lock-free.
std::atomic<bool> stop_requested{false}, save_requested{false};
std::atomic<unsigned> deadline_s{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<unsigned>::is_always_lock_free);

void on_signal(int signal) {
  if (signal == SIGUSR2) {
    save_requested = true;
    return;
  }
  stop_requested = true;
  if (signal == SIGTERM && deadline_s > 0) alarm(deadline_s);
}

// A timer of the system, not a thread: it works while every thread hangs in a disk or a device.
void on_deadline(int) {
  constexpr std::string_view kText =
      "error: [train] --save-deadline: the time after SIGTERM is over and not everything is saved; "
      "checkpoints with a manifest are whole: go on with --resume auto\n";
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, kText.data(), kText.size());
  _exit(kSaveDeadlineExit);
}

}  // namespace

Interrupt::Interrupt(int64_t save_deadline_s) {
  stop_requested = save_requested = false;
  deadline_s = unsigned(save_deadline_s);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    const int signal = kSignals[i];
    struct sigaction action {};
    action.sa_handler = signal == SIGALRM ? on_deadline : on_signal;
    action.sa_flags = SA_RESTART;
    // A wish to stop is taken once: then the system's own way of dealing with the signal is back.
    if (signal != SIGUSR2) action.sa_flags |= static_cast<int>(SA_RESETHAND);
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
