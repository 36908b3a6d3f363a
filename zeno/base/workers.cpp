#include "zeno/base/workers.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <vector>

#include "zeno/base/math.h"
#include "zeno/base/thread.h"

namespace zeno {

struct Workers::Team {
  std::mutex mutex;
  std::condition_variable start, done;
  uint64_t round = 0;
  int running = 0;
  bool stop = false;
  const std::function<void(int64_t, int)>* body = nullptr;
  int64_t count = 0;
  std::atomic<int64_t> next{0};
  std::exception_ptr error;
  std::vector<std::thread> threads;

  // Also when a thread cannot be started.
  ~Team() {
    {
      const std::scoped_lock lock(mutex);
      stop = true;
    }
    start.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  void work(int thread) {
    try {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) (*body)(i, thread);
    } catch (...) {
      next.store(count, std::memory_order_relaxed);
      const std::scoped_lock lock(mutex);
      if (!error) error = std::current_exception();
    }
  }

  void loop(int thread) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      start.wait(lock, [&] { return stop || round != seen; });
      if (stop) return;
      seen = round;
      lock.unlock();
      work(thread);
      lock.lock();
      if (--running == 0) done.notify_one();
    }
  }
};

Workers::Workers(int threads, std::byte* scratch, size_t scratch_bytes, const std::function<void()>& prepare)
    : threads_(std::max(1, threads)), scratch_(scratch), scratch_bytes_(scratch_bytes) {
  if (threads_ == 1) return;
  team_ = std::make_unique<Team>();
  for (int t = 1; t < threads_; ++t) {
    team_->threads.push_back(start_thread([team = team_.get(), t, prepare] {
      if (prepare) prepare();
      team->loop(t);
    }));
  }
}

Workers::~Workers() = default;

void Workers::for_each(int64_t count, const std::function<void(int64_t, int)>& body) {
  if (!team_ || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
  Team& team = *team_;
  {
    const std::scoped_lock lock(team.mutex);
    team.body = &body;
    team.count = count;
    team.next.store(0, std::memory_order_relaxed);
    team.error = nullptr;
    team.running = threads_ - 1;
    ++team.round;
  }
  team.start.notify_all();
  team.work(0);
  std::unique_lock lock(team.mutex);
  team.done.wait(lock, [&] { return team.running == 0; });
  if (team.error) std::rethrow_exception(team.error);
}

void Workers::for_ranges(int64_t count, int64_t grain,
                         const std::function<void(int64_t, int64_t, int)>& body) {
  grain = std::max<int64_t>(1, grain);
  for_each(div_ceil(count, grain),
           [&](int64_t i, int thread) { body(i * grain, std::min(count, (i + 1) * grain), thread); });
}

}  // namespace zeno
