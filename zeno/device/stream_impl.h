// What stands behind Stream and Event on each device. Only for the .cpp files of this layer.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "zeno/device/stream.h"

namespace zeno {

// The mark that a device keeps of its own (a cudaEvent_t). Made at the first record, reused by later ones.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  virtual bool done() const = 0;
  virtual void synchronize() const = 0;
};

// `recorded` counts the records issued on CPU streams, `reached` those whose work is done. A waiter remembers
// the count it saw, so re-recording an event never moves an earlier wait. `mark` is set while the last record
// was made by another device.
struct Event::State {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  uint64_t recorded = 0;
  uint64_t reached = 0;
  std::exception_ptr error;
  std::shared_ptr<DeviceMark> mark;

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
