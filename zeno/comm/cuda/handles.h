// Owners of the CUDA handles that communicators keep: events, and a stream of their own. Made on the current
// device. Move-only.
#pragma once

#include <utility>

#include "zeno/device/cuda/runtime.h"

namespace zeno::comm {

class CudaEvent {
 public:
  CudaEvent() { cuda::check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "create an event"); }
  ~CudaEvent() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }

  void record(cudaStream_t stream) { cuda::check(cudaEventRecord(event_, stream), "record an event"); }
  // Work queued later on `stream` waits for the last record(), or not at all when there was none.
  void hold(cudaStream_t stream) const {
    cuda::check(cudaStreamWaitEvent(stream, event_), "wait for an event");
  }
  cudaError_t query() const { return cudaEventQuery(event_); }
  void synchronize() const noexcept { cudaEventSynchronize(event_); }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaStreamHandle {
 public:
  CudaStreamHandle() {
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream");
  }
  ~CudaStreamHandle() { cudaStreamDestroy(stream_); }
  CudaStreamHandle(CudaStreamHandle&&) = delete;

  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace zeno::comm
