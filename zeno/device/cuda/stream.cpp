// CUDA streams and events. A CUDA stream waits for CUDA events on the device; for an event of a CPU stream
// the calling host thread waits.
#include "zeno/base/error.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/device/stream_impl.h"

namespace zeno {
namespace {

class CudaMark final : public DeviceMark {
 public:
  CudaMark() { cuda::check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "create an event"); }
  ~CudaMark() override { cudaEventDestroy(event_); }
  bool done() const override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    cuda::check(status, "query an event");
    return true;
  }
  void synchronize() const override { cuda::check(cudaEventSynchronize(event_), "wait for an event"); }
  cudaEvent_t native() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaStream final : public StreamImpl {
 public:
  explicit CudaStream(StreamOptions given) : StreamImpl(std::move(given)) {
    cuda::check(cudaSetDevice(options().device.index), "choose the device");
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream");
  }
  ~CudaStream() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }

  cudaStream_t native() const { return stream_; }

  void launch(CpuTask) override {
    fail(ErrorKind::internal, "[stream] {} is on {}: CPU tasks cannot run there", options().name,
         describe(options().device));
  }
  void record(const std::shared_ptr<Event::State>& event) override {
    auto mark = std::dynamic_pointer_cast<CudaMark>(event->device_mark());
    if (!mark) {
      mark = std::make_shared<CudaMark>();
      const std::scoped_lock lock(event->mutex);
      event->mark = mark;
    }
    cuda::check(cudaEventRecord(mark->native(), stream_), "record an event");
  }
  void wait(const std::shared_ptr<Event::State>& event) override {
    if (const auto mark = std::dynamic_pointer_cast<CudaMark>(event->device_mark())) {
      cuda::check(cudaStreamWaitEvent(stream_, mark->native()), "wait for an event");
    } else if (std::exception_ptr failure = event->await(event->last_count())) {
      std::rethrow_exception(failure);
    }
  }
  void synchronize() override { cuda::check(cudaStreamSynchronize(stream_), options().name.c_str()); }
  void reset_error() override {}  // a CUDA error is sticky: the process has to end

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<StreamImpl> make_cuda_stream(StreamOptions options) {
  return std::make_unique<CudaStream>(std::move(options));
}

cudaStream_t cuda::native(StreamRef stream) { return static_cast<CudaStream*>(stream.impl())->native(); }

std::span<std::byte> cuda::scratch(StreamRef stream) {
  const StreamOptions& options = stream.impl()->options();
  ensure(options.scratch != nullptr && options.scratch_bytes >= kScratchBytes,
         "[stream] {} has {} bytes of scratch, expected at least {}", options.name, options.scratch_bytes,
         kScratchBytes);
  return {options.scratch, options.scratch_bytes};
}

}  // namespace zeno
