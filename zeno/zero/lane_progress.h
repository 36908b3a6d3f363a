// How far the threads that queue the lanes of a program have come. A stream can wait only for events that
// have been recorded, so before a thread queues an instruction it waits here until those it depends on have
// been queued. The position of a lane only grows. Thread rule: any thread.
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
  // Blocks until the lane has reached `position`. Returns false if give_up() was called.
  bool await(Lane lane, int64_t position) const;
  // Wakes all waiting threads. Keeps `why` of the first call; null: no error.
  void give_up(std::exception_ptr why);
  bool given_up() const;
  // Throws the `why` that was kept, if any.
  void rethrow() const;

 private:
  std::array<std::atomic<int64_t>, kLanes> positions_{};
  mutable std::mutex mutex_;
  std::atomic<bool> given_up_ = false;
  std::exception_ptr why_;
};

}  // namespace zeno::zero
