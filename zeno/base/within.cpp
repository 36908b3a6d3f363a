#include "zeno/base/within.h"

#include <algorithm>
#include <future>

#include "zeno/base/log.h"
#include "zeno/base/thread.h"

namespace zeno {

bool finishes_within(std::chrono::milliseconds longest, std::function<void()> work,
                     const std::function<bool()>& give_up) {
  constexpr std::chrono::milliseconds kStep(100);
  std::packaged_task<void()> task(std::move(work));
  std::future<void> end = task.get_future();
  start_thread([task = std::move(task), rank = log_rank()]() mutable {
    set_log_rank(rank);
    task();
  }).detach();
  while (end.wait_for(std::min(longest, kStep)) != std::future_status::ready) {
    longest -= std::min(longest, kStep);
    if (longest.count() == 0 || (give_up && give_up())) return false;
  }
  end.get();
  return true;
}

}  // namespace zeno
