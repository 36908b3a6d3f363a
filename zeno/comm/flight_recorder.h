// The last operations of one rank, over all its communicators: what was issued, what has started, what is
// done, and when. Printed when a collective fails. Fixed memory. Thread rule: any thread may call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/comm/op_record.h"

namespace zeno::comm {

class FlightRecorder {
 public:
  explicit FlightRecorder(int capacity);

  // Returns the handle that start() and done() take.
  uint64_t issue(std::string_view communicator, const OpRecord& record, int64_t bytes);
  void start(uint64_t handle);
  void done(uint64_t handle);

  // One line per operation, oldest first, with seconds since the recorder was made.
  std::string dump() const { return dump(ring_.size()); }
  // The last few, the first time it is called; empty afterwards, so that one failure is told once.
  std::string dump_once();

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { issued, started, done };
  struct Entry {
    uint64_t handle = 0;  // 0: empty
    char communicator[24] = {};
    OpRecord record;
    int64_t bytes = 0;
    State state = State::issued;
    Clock::time_point issued, started, finished;
  };

  std::string dump(size_t last) const;
  Entry* find(uint64_t handle);
  static std::string_view name_of(State state);
  double seconds(Clock::time_point t) const;

  mutable std::mutex mutex_;
  const Clock::time_point begin_ = Clock::now();
  uint64_t next_ = 1;
  std::atomic<bool> told_{false};
  std::vector<Entry> ring_;
};

}  // namespace zeno::comm
