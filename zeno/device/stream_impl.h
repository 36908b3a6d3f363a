// The implementations of Stream and Event on each device. Only for the .cpp files of this layer.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "zeno/device/stream.h"

namespace zeno {

// A record made by a device of its own kind (a cudaEvent_t). Never changes: recording again makes another.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  virtual bool done() const = 0;
  virtual void synchronize() const = 0;
  // Tells whether the record was reached, for CPU streams to poll; throws when the device failed. Makes no
  // call of the device's library, whose locks may be held by a launch that waits for the very stream that
  // polls.
  virtual std::function<bool()> probe() const = 0;
};

// The progress of a CPU stream: the number of the last record it reached and the error it had there. Shared
// by the stream, its events and the device streams behind them.
struct CpuProgress {
  mutable std::mutex mutex;
  uint64_t reached = 0;
  std::exception_ptr error;
  // `reached` again, where a device can poll it; set when one first waits.
  std::atomic<uint64_t>* counter = nullptr;

  void reach(uint64_t record, std::exception_ptr failure);
  void forgive();
  void rethrow() const;
};

// `recorded` counts the records issued on CPU streams, `reached` those whose work is done. A waiter remembers
// the count it saw, so re-recording an event never moves an earlier wait. `mark` is set while the last record
// was made by another device; else `progress` and `record` name the last record as its stream counts.
struct Event::State {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  uint64_t recorded = 0;
  uint64_t reached = 0;
  std::exception_ptr error;
  std::shared_ptr<DeviceMark> mark;
  std::shared_ptr<CpuProgress> progress;
  uint64_t record = 0;

  void reach(uint64_t count, std::exception_ptr failure);
  std::exception_ptr await(uint64_t count) const;
  uint64_t last_count() const;
  std::shared_ptr<DeviceMark> device_mark() const;
};

class StreamImpl {
 public:
  explicit StreamImpl(StreamOptions options) : options_(std::move(options)) {}
  virtual ~StreamImpl() = default;

  const StreamOptions& options() const { return options_; }
  virtual void launch(CpuTask task) = 0;
  virtual void record(const std::shared_ptr<Event::State>& event) = 0;
  virtual void wait(const std::shared_ptr<Event::State>& event) = 0;
  virtual void synchronize() = 0;
  virtual void reset_error() = 0;

 private:
  StreamOptions options_;
};

std::unique_ptr<StreamImpl> make_cpu_stream(StreamOptions options);
// Throws Error(usage) when this build or this machine has no such device.
std::unique_ptr<StreamImpl> make_cuda_stream(StreamOptions options);

}  // namespace zeno
