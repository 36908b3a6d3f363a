#include "zeno/comm/flight/flight_recorder.h"

#include <algorithm>
#include <map>

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
  entry.issued = last_sign_ = Clock::now();
  return handle;
}

void FlightRecorder::start(uint64_t handle) {
  const std::scoped_lock lock(mutex_);
  if (Entry* entry = find(handle)) {
    entry->state = State::started;
    entry->started = last_sign_ = Clock::now();
  }
}

void FlightRecorder::done(uint64_t handle) {
  const std::scoped_lock lock(mutex_);
  if (Entry* entry = find(handle)) {
    entry->state = State::done;
    entry->finished = last_sign_ = Clock::now();
  }
}

std::vector<FlightRecorder::Position> FlightRecorder::positions() const {
  const std::scoped_lock lock(mutex_);
  std::map<std::string, Position> positions;
  for (uint64_t handle = next_ > ring_.size() ? next_ - ring_.size() : 1; handle < next_; ++handle) {
    const Entry& entry = ring_[handle % ring_.size()];
    const bool message = entry.record.kind == OpKind::send || entry.record.kind == OpKind::recv;
    if (message || entry.state == State::issued) continue;
    Position& at = positions[entry.communicator];
    at.communicator = entry.communicator;
    at.title = title(entry.record);
    at.started = entry.record.sequence;
    if (entry.state == State::done) at.done = entry.record.sequence;
    at.seconds = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - entry.started);
  }
  std::vector<Position> all;
  for (auto& [name, at] : positions) all.push_back(std::move(at));
  return all;
}

FlightRecorder::Clock::time_point FlightRecorder::last_sign() const {
  const std::scoped_lock lock(mutex_);
  return last_sign_;
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

RecordedExchange::RecordedExchange(FlightRecorder& recorder, uint64_t number, std::string_view what)
    : recorder_(recorder) {
  OpRecord record = make_record(OpKind::exchange, {}, DType::u8, -1, what);
  record.sequence = number;
  handle_ = recorder.issue("world", record, 0);
  recorder.start(handle_);
  text_ = fmt::format("{} (operation {} on 'world')", title(record), number);
}

// Null when the ring has overwritten the entry.
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
