// The last operations of one rank, over all its communicators: what was issued, what has started, what is
// done, and when. Printed when a collective fails. Fixed memory. Thread rule: any thread may call.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/comm/flight/op_record.h"

namespace zeno::comm {

class FlightRecorder {
 public:
  explicit FlightRecorder(int capacity);

  // Returns the handle that start() and done() take.
  uint64_t issue(std::string_view communicator, const OpRecord& record, int64_t bytes);
  void start(uint64_t handle);
  void done(uint64_t handle);

  // One line per operation, oldest first, with seconds since the recorder was made: all that are kept, or the
  // last ones.
  std::string dump() const { return dump(ring_.size()); }
  std::string dump(size_t last) const;

  // How far a communicator has come in its collectives.
  struct Position {
    std::string communicator, title;      // title: of the operation started last
    uint64_t started = 0, done = 0;       // numbers of operations; started > done: one is running
    std::chrono::milliseconds seconds{};  // since then
  };
  std::vector<Position> positions() const;
  // When an operation was last issued, started or done.
  std::chrono::steady_clock::time_point last_sign() const;

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

  Entry* find(uint64_t handle);
  static std::string_view name_of(State state);
  double seconds(Clock::time_point t) const;

  mutable std::mutex mutex_;
  const Clock::time_point begin_ = Clock::now();
  uint64_t next_ = 1;
  Clock::time_point last_sign_ = begin_;
  std::vector<Entry> ring_;
};

// An exchange of small values, as an operation on 'world'.
class RecordedExchange {
 public:
  RecordedExchange(FlightRecorder& recorder, uint64_t number, std::string_view what);
  const std::string& text() const { return text_; }  // "exchange of seeds (operation 3 on 'world')"
  void done() const { recorder_.done(handle_); }

 private:
  FlightRecorder& recorder_;
  uint64_t handle_ = 0;
  std::string text_;
};

}  // namespace zeno::comm
