// An in-order queue of work on a device, and events between queues. CPU streams are real: a worker thread
// each, so overlap, and every race it can hide, exists without a GPU.
//
// Stream owns, StreamRef is a view that kernels and collectives take. All calls are async except those named
// synchronize. When a task throws, the stream keeps the first exception, skips what follows, and hands the
// exception on through events: a stream that waits for a failed one fails too. synchronize() rethrows it.
//
// CPU and CUDA streams may wait for each other; neither the caller nor the driver is held up by it. A failed
// CPU stream still reaches its records, so that no GPU hangs. A GPU knows no exceptions: CUDA work queued
// after a failed CPU stream runs on whatever data is there, and the error is rethrown by synchronize() of
// that CUDA stream, of an event recorded on it, and on every CPU stream that waits for such an event. Thread
// rule: any thread may launch; order is the order of the calls.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "zeno/base/workers.h"
#include "zeno/device/device.h"

namespace zeno {

class Event;

// What a CPU task runs with: the threads of its stream.
using CpuTask = std::function<void(Workers&)>;

class StreamImpl;

class StreamRef {
 public:
  Device device() const;
  const std::string& name() const;
  // Runs `task` on the worker thread after everything launched before it. CPU streams only.
  void launch(CpuTask task) const;
  // Work launched later waits until `event` has happened.
  void wait(const Event& event) const;
  // Blocks the caller until the stream is idle; rethrows the first error of the stream.
  void synchronize() const;
  // For the files that implement a device.
  StreamImpl* impl() const { return impl_; }

 private:
  friend class Stream;
  friend class Event;
  explicit StreamRef(StreamImpl* impl) : impl_(impl) {}
  StreamImpl* impl_;
};

struct StreamOptions {
  Device device;
  std::string name;
  int rank = -1;    // log tag of the worker thread
  int threads = 1;  // CPU: threads its loops run on, the worker included
  Device near;      // CPU: these keep to the cores near that device, where its host memory is
  // Scratch for kernels, owned by the caller. CPU: threads × scratch_bytes; CUDA: scratch_bytes of device
  // memory.
  std::byte* scratch = nullptr;
  size_t scratch_bytes = 0;
  // CUDA: CPU streams will wait for events of this stream. Each record then also writes a word of host
  // memory, so such a stream cannot be recorded as a graph.
  bool cpu_waits = false;
};

class Stream {
 public:
  explicit Stream(StreamOptions options);
  ~Stream();  // drains the queue
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;

  StreamRef ref() const { return StreamRef(impl_.get()); }
  operator StreamRef() const { return ref(); }
  void synchronize() const { ref().synchronize(); }
  // Forgets a stored error so that the stream can be used again.
  void reset_error();

 private:
  std::unique_ptr<StreamImpl> impl_;
};

// A point in a stream. record() marks it; wait (on a stream) and synchronize (on the caller) pass once the
// marked work is done. An event that was never recorded counts as done. Re-recording moves the mark.
class Event {
 public:
  Event();
  void record(StreamRef stream);
  bool done() const;
  void synchronize() const;

  struct State;

 private:
  friend class StreamRef;
  friend class StreamImpl;
  // Shared with the queues that will signal or await it: they may outlive this handle.
  std::shared_ptr<State> state_;
};

}  // namespace zeno
