#include "zeno/zero/lane_progress.h"

#include <limits>
#include <utility>

namespace zeno::zero {
namespace {

constexpr int64_t kGivenUp = std::numeric_limits<int64_t>::max();

}  // namespace

void LaneProgress::reach(Lane lane, int64_t position) {
  std::atomic<int64_t>& mine = positions_[size_t(lane)];
  int64_t before = mine.load(std::memory_order_relaxed);
  // Besides the lane's own thread only give_up() writes, and nothing replaces what it wrote.
  while (before != kGivenUp && !mine.compare_exchange_weak(before, position, std::memory_order_release)) {
  }
  mine.notify_all();
}

bool LaneProgress::await(Lane lane, int64_t position) const {
  const std::atomic<int64_t>& theirs = positions_[size_t(lane)];
  int64_t now = theirs.load(std::memory_order_acquire);
  while (now < position) {
    theirs.wait(now, std::memory_order_acquire);
    now = theirs.load(std::memory_order_acquire);
  }
  return now != kGivenUp;
}

void LaneProgress::give_up(std::exception_ptr why) {
  {
    const std::scoped_lock lock(mutex_);
    if (!given_up_) why_ = std::move(why);
    given_up_ = true;
  }
  for (std::atomic<int64_t>& position : positions_) {
    position.store(kGivenUp, std::memory_order_release);
    position.notify_all();
  }
}

bool LaneProgress::given_up() const { return given_up_; }

void LaneProgress::rethrow() const {
  const std::scoped_lock lock(mutex_);
  if (why_) std::rethrow_exception(why_);
}

}  // namespace zeno::zero
