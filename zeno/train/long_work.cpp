#include "zeno/train/long_work.h"

#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "zeno/base/log.h"
#include "zeno/base/thread.h"
#include "zeno/comm/failure.h"
#include "zeno/comm/joint_error.h"

namespace zeno::train {
namespace {

class BackgroundWork {
 public:
  explicit BackgroundWork(const std::function<void(std::stop_token)>& work)
      : task_([this, &work, rank = log_rank()] {
          set_log_rank(rank);
          work(stop_.get_token());
        }),
        result_(task_.get_future()),
        thread_(start_thread([this] { task_(); })) {}
  ~BackgroundWork() {
    stop_.request_stop();
    thread_.join();
  }
  BackgroundWork(const BackgroundWork&) = delete;

  bool wait(std::chrono::milliseconds moment) {
    return result_.wait_for(moment) == std::future_status::ready;
  }
  // Call it after the end; throws what `work` threw.
  void finish() { result_.get(); }

 private:
  std::stop_source stop_;
  std::packaged_task<void()> task_;
  std::future<void> result_;
  std::thread thread_;
};

// What a rank tells the others: one of these, or the kind of its failure as a digit, then the error text.
constexpr char kBusy = 'b', kDone = 'd';

std::string state_of(std::optional<BackgroundWork>& work) {
  if (!work) return {kDone};
  if (!work->wait(std::chrono::milliseconds(200))) return {kBusy};
  try {
    work->finish();
  } catch (...) {
    const comm::Ending ending = comm::ending_of(std::current_exception());
    return char('0' + int(ending.kind)) + ending.text;
  }
  work.reset();
  return {kDone};
}

}  // namespace

void work_long_together(comm::World& world, std::string_view what,
                        const std::function<void(std::stop_token)>& work) {
  std::optional<BackgroundWork> mine;
  if (work) mine.emplace(work);
  for (bool busy = true; busy;) {
    const std::vector<std::string> all = world.exchange(state_of(mine), what);
    busy = false;
    for (size_t r = 0; r < all.size(); ++r) {
      const char state = all[r][0];
      if (state != kBusy && state != kDone)
        comm::fail_together(world, int(r), ErrorKind(state - '0'), all[r].substr(1));
      busy = busy || state == kBusy;
    }
  }
}

}  // namespace zeno::train
