#include "zeno/data/prefetcher.h"

#include <utility>

#include "zeno/base/log.h"
#include "zeno/base/thread.h"

namespace zeno::data {

Prefetcher::Prefetcher(const Loader& loader, int64_t first_step)
    : Prefetcher([&loader](int64_t step) { return loader.step(step); }, first_step) {}

Prefetcher::Prefetcher(Source source, int64_t first_step)
    : source_(std::move(source)),
      next_(first_step),
      thread_(start_thread([this, rank = log_rank()] { run(rank); })) {}

Prefetcher::~Prefetcher() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::vector<HostBatch> Prefetcher::get() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready_ || error_; });
  if (!ready_) std::rethrow_exception(error_);
  std::vector<HostBatch> batches = std::move(*ready_);
  ready_.reset();
  lock.unlock();
  changed_.notify_all();
  return batches;
}

void Prefetcher::run(int rank) try {
  set_log_rank(rank);
  for (;; ++next_) {
    std::vector<HostBatch> batches = source_(next_);
    std::unique_lock lock(mutex_);
    // One step is ready and the next is not begun before that one is taken: memory stays at one step.
    ready_ = std::move(batches);
    changed_.notify_all();
    changed_.wait(lock, [&] { return stop_ || !ready_; });
    if (stop_) return;
  }
} catch (...) {
  const std::scoped_lock lock(mutex_);
  error_ = std::current_exception();
  changed_.notify_all();
}

}  // namespace zeno::data
