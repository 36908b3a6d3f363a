// How far the threads that queue the lanes of a program have come. A stream can be told to wait for an event
// only once that event has been recorded, so whoever queues an instruction first waits here until those it
// depends on have been queued. Positions of a lane only grow. Thread rule: any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "zeno/zero/program/lane.h"

namespace zeno::zero {

class LaneProgress {
 public:
  void reach(Lane lane, int64_t position);
  // Blocks until the lane is there; false: it will not come, all has been given up.
  bool await(Lane lane, int64_t position) const;
  // Wakes everybody. `why` of the first call is kept; null: nobody is to blame.
  void give_up(std::exception_ptr why);
  bool given_up() const;
  // Throws why it was given up.
  void rethrow() const;

 private:
  std::array<std::atomic<int64_t>, kLanes> positions_{};
  mutable std::mutex mutex_;
  std::atomic<bool> given_up_ = false;
  std::exception_ptr why_;
};

}  // namespace zeno::zero
