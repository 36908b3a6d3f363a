// Sleeping on a word of memory, within a process or between processes, and the wait that all of comm uses:
// spin a little, then sleep, and wake up now and then to check whether the world has failed.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "zeno/comm/failure.h"

namespace zeno::comm {

// Returns when woken, when `word` is not `expected`, or after about `milliseconds`.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, int milliseconds);
void futex_wake_all(std::atomic<uint32_t>& word);

// Rung whenever something a sleeper may wait for has changed.
class Bell {
 public:
  void ring() {
    rings_.fetch_add(1);
    if (sleepers_.load() != 0) futex_wake_all(rings_);
  }

  // Returns when ready() holds; throws what wait.check() throws.
  template <class Ready>
  void wait_until(const Ready& ready, OpWait& wait, int spins) {
    for (int i = 0; i < spins; ++i) {
      if (ready()) return;
      __builtin_ia32_pause();
    }
    for (int i = 0; i < kYields; ++i) {
      if (ready()) return;
      sched_yield();
    }
    while (true) {
      const uint32_t seen = rings_.load();
      sleepers_.fetch_add(1);
      const bool ok = ready();
      if (!ok) futex_wait(rings_, seen, kLookUpMs);
      sleepers_.fetch_sub(1);
      if (ok || ready()) return;
      wait.check();
    }
  }

 private:
  static constexpr int kYields = 4;
  static constexpr int kLookUpMs = 10;
  std::atomic<uint32_t> rings_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace zeno::comm
