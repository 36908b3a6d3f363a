#include "zeno/comm/flight_recorder.h"

#include <algorithm>

namespace zeno::comm {

FlightRecorder::FlightRecorder(int capacity) : ring_(size_t(std::max(1, capacity))) {}

uint64_t FlightRecorder::issue(std::string_view communicator, const OpRecord& record, int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  const uint64_t handle = next_++;
  Entry& entry = ring_[handle % ring_.size()];
  entry = {};
  entry.handle = handle;
  communicator.copy(entry.communicator, sizeof entry.communicator - 1);
  entry.record = record;
  entry.bytes = bytes;
  entry.issued = Clock::now();
  return handle;
}

void FlightRecorder::start(uint64_t handle) {
  const std::scoped_lock lock(mutex_);
  if (Entry* entry = find(handle)) {
    entry->state = State::started;
    entry->started = Clock::now();
  }
}

void FlightRecorder::done(uint64_t handle) {
  const std::scoped_lock lock(mutex_);
  if (Entry* entry = find(handle)) {
    entry->state = State::done;
    entry->finished = Clock::now();
  }
}

std::string FlightRecorder::dump_once() {
  constexpr size_t kFew = 12;
  return told_.exchange(true) ? std::string() : dump(kFew);
}

std::string FlightRecorder::dump(size_t last) const {
  const std::scoped_lock lock(mutex_);
  last = std::min(last, ring_.size());
  std::string text = fmt::format("{:>6} {:>12} {:>8} {:>14} {:>9} {:>9} {:>9}  operation\n", "number",
                                 "communicator", "state", "bytes", "issued", "started", "done");
  for (uint64_t handle = next_ > last ? next_ - last : 1; handle < next_; ++handle) {
    const Entry& entry = ring_[handle % ring_.size()];
    const auto time = [&](State since, Clock::time_point t) {
      return entry.state >= since ? fmt::format("{:.3f}", seconds(t)) : std::string("-");
    };
    text += fmt::format("{:>6} {:>12} {:>8} {:>14} {:>9} {:>9} {:>9}  {}\n", entry.record.sequence,
                        entry.communicator, name_of(entry.state), entry.bytes,
                        time(State::issued, entry.issued), time(State::started, entry.started),
                        time(State::done, entry.finished), describe(entry.record));
  }
  return text;
}

// Null when the ring has moved on.
FlightRecorder::Entry* FlightRecorder::find(uint64_t handle) {
  Entry& entry = ring_[handle % ring_.size()];
  return entry.handle == handle ? &entry : nullptr;
}

std::string_view FlightRecorder::name_of(State state) {
  switch (state) {
    case State::issued:
      return "issued";
    case State::started:
      return "started";
    case State::done:
      return "done";
  }
  return "?";
}

double FlightRecorder::seconds(Clock::time_point t) const {
  return std::chrono::duration<double>(t - begin_).count();
}

}  // namespace zeno::comm
