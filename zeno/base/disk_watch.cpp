#include "zeno/base/disk_watch.h"

#include "zeno/base/log.h"
#include "zeno/base/thread.h"

namespace zeno {

DiskWatch::DiskWatch(std::function<std::optional<DiskStall>()> look,
                     std::function<void(const DiskStall&)> tell) {
  thread_ = start_thread([this, look = std::move(look), tell = std::move(tell), rank = log_rank()] {
    set_log_rank(rank);
    constexpr auto kEvery = std::chrono::milliseconds(200);
    std::unique_lock lock(mutex_);
    while (!change_.wait_for(lock, kEvery, [&] { return over_; })) {
      lock.unlock();
      if (const std::optional<DiskStall> stall = look()) return tell(*stall);
      lock.lock();
    }
  });
}

DiskWatch::~DiskWatch() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  change_.notify_all();
  thread_.join();
}

}  // namespace zeno
