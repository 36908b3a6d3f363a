#include "zeno/base/time_limit.h"

#include "zeno/base/log.h"
#include "zeno/base/thread.h"

namespace zeno {

TimeLimit::TimeLimit(std::chrono::milliseconds longest, std::function<void()> over) {
  thread_ = start_thread([this, longest, over = std::move(over), rank = log_rank()] {
    set_log_rank(rank);
    std::unique_lock lock(mutex_);
    if (!change_.wait_for(lock, longest, [&] { return done_; })) over();
  });
}

TimeLimit::~TimeLimit() {
  {
    const std::scoped_lock lock(mutex_);
    done_ = true;
  }
  change_.notify_all();
  thread_.join();
}

}  // namespace zeno
