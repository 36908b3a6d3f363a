#include "zeno/base/watch.h"

#include <chrono>

#include "zeno/base/log.h"
#include "zeno/base/thread.h"

namespace zeno {

Watch::Watch(std::function<bool()> look) {
  thread_ = start_thread([this, look = std::move(look), rank = log_rank()] {
    set_log_rank(rank);
    constexpr auto kEvery = std::chrono::milliseconds(200);
    std::unique_lock lock(mutex_);
    while (!change_.wait_for(lock, kEvery, [&] { return over_; })) {
      lock.unlock();
      if (look()) return;
      lock.lock();
    }
  });
}

Watch::~Watch() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  change_.notify_all();
  thread_.join();
}

}  // namespace zeno
