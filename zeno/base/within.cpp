#include "zeno/base/within.h"

#include <future>

#include "zeno/base/log.h"
#include "zeno/base/thread.h"

namespace zeno {

bool finishes_within(std::chrono::milliseconds longest, std::function<void()> work) {
  std::packaged_task<void()> task(std::move(work));
  std::future<void> end = task.get_future();
  start_thread([task = std::move(task), rank = log_rank()]() mutable {
    set_log_rank(rank);
    task();
  }).detach();
  if (end.wait_for(longest) != std::future_status::ready) return false;
  end.get();
  return true;
}

}  // namespace zeno
