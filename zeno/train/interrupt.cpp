#include "zeno/train/interrupt.h"

#include <atomic>

namespace zeno::train {
namespace {

// What a signal handler may touch has to be global and lock-free.
std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

Interrupt::Interrupt() {
  stop_requested = false;
  struct sigaction action {};
  action.sa_handler = [](int) { stop_requested = true; };
  // The handler serves once: then the system's own way of dealing with the signal is back.
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

Interrupt::~Interrupt() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

bool Interrupt::requested() { return stop_requested; }

}  // namespace zeno::train
