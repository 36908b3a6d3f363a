// CUDA streams and events. CUDA streams wait for each other by cudaEvent_t. Between CPU and CUDA streams
// stand counters in pinned memory: each side writes the number of the record it reached, the other polls it.
#include <algorithm>
#include <chrono>
#include <stop_token>
#include <thread>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/device/cuda/counter.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/device/stream_impl.h"

namespace zeno {
namespace {

// The CPU streams that something on a GPU has waited for, each once.
class Upstream {
 public:
  void add(const std::shared_ptr<CpuProgress>& stream) {
    if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) streams_.push_back(stream);
  }
  void add(const Upstream& other) {
    for (const auto& stream : other.streams_) add(stream);
  }
  void rethrow() const {
    for (const auto& stream : streams_) stream->rethrow();
  }

 private:
  std::vector<std::shared_ptr<CpuProgress>> streams_;
};

// How far a CUDA stream has come, for the CPU streams that wait for it. Shared with their queues.
struct CudaProgress {
  cuda::Counter* const counter = cuda::make_counter();
  std::atomic<bool> failed = false;
  std::exception_ptr error;  // written before `failed`

  bool reached(uint64_t record) const {
    if (counter->load(std::memory_order_acquire) >= record) return true;
    if (failed) std::rethrow_exception(error);
    return false;
  }
};

class CudaEvent {
 public:
  CudaEvent() { cuda::check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "create an event"); }
  ~CudaEvent() { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// A record and what it stands behind. The handle is shared with later records of the same event.
struct CudaMark final : DeviceMark {
  std::shared_ptr<CudaEvent> event;
  Upstream upstream;
  std::shared_ptr<CudaProgress> progress;  // null: CPU streams cannot wait for it
  uint64_t record = 0;
  int device = 0;

  // The calling thread may be new, and would wake the first GPU too.
  bool done() const override {
    cuda::check(cudaSetDevice(device), "choose the device");
    const cudaError_t status = cudaEventQuery(*event);
    if (status == cudaErrorNotReady) return false;
    cuda::check(status, "query an event");
    return true;
  }
  void synchronize() const override {
    cuda::check(cudaSetDevice(device), "choose the device");
    cuda::check(cudaEventSynchronize(*event), "wait for an event");
    upstream.rethrow();
  }
  std::function<bool()> probe() const override {
    ensure(progress != nullptr,
           "[stream] a CPU stream waits for an event of a CUDA stream that was made without cpu_waits");
    return [progress = progress, record = record, upstream = upstream] {
      if (!progress->reached(record)) return false;
      upstream.rethrow();
      return true;
    };
  }
};

class CudaStream final : public StreamImpl {
 public:
  explicit CudaStream(StreamOptions given) : StreamImpl(std::move(given)) {
    cuda::check(cudaSetDevice(options().device.index), "choose the device");
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream");
    if (!options().cpu_waits) return;
    progress_ = std::make_shared<CudaProgress>();
    watch_ = std::jthread([this](std::stop_token stop) { watch(stop); });
  }
  ~CudaStream() override {
    watch_ = {};
    ask(cudaStreamSynchronize);
    cudaStreamDestroy(stream_);
  }

  cudaStream_t native() const { return stream_; }

  void launch(CpuTask) override {
    fail(ErrorKind::internal, "[stream] {} is on {}: CPU tasks cannot run there", options().name,
         describe(options().device));
  }
  void record(const std::shared_ptr<Event::State>& event) override {
    const auto last = std::dynamic_pointer_cast<CudaMark>(event->device_mark());
    const auto mark = std::make_shared<CudaMark>();
    mark->event = last ? last->event : std::make_shared<CudaEvent>();
    {
      const std::scoped_lock lock(mutex_);
      cuda::check(cudaEventRecord(*mark->event, stream_), "record an event");
      if (progress_) cuda::write_counter(stream_, progress_->counter, ++records_);
      mark->progress = progress_;
      mark->record = records_;
      mark->device = options().device.index;
      mark->upstream = upstream_;
    }
    const std::scoped_lock lock(event->mutex);
    event->mark = mark;
  }
  void wait(const std::shared_ptr<Event::State>& event) override {
    if (const auto mark = std::dynamic_pointer_cast<CudaMark>(event->device_mark())) {
      cuda::check(cudaStreamWaitEvent(stream_, *mark->event), "wait for an event");
      const std::scoped_lock lock(mutex_);
      upstream_.add(mark->upstream);
    } else {
      wait_for_cpu(*event);
    }
  }
  void synchronize() override {
    cuda::check(cudaSetDevice(options().device.index), "choose the device");
    cuda::check(cudaStreamSynchronize(stream_), options().name.c_str());
    const std::scoped_lock lock(mutex_);
    upstream_.rethrow();
  }
  void reset_error() override {}  // a CUDA error is sticky: the process has to end

 private:
  void wait_for_cpu(const Event::State& event) {
    std::shared_ptr<CpuProgress> progress;
    uint64_t record;
    {
      const std::scoped_lock lock(event.mutex);
      progress = event.progress;
      record = event.record;
    }
    if (!progress) return;  // never recorded
    {
      const std::scoped_lock lock(mutex_);
      upstream_.add(progress);
    }
    {
      const std::scoped_lock lock(progress->mutex);
      if (progress->reached >= record) return;
      if (progress->counter == nullptr) {
        progress->counter = cuda::make_counter();
        progress->counter->store(progress->reached);
      }
    }
    cuda::wait_counter(stream_, progress->counter, record);
  }

  // CPU streams that wait for this one make no CUDA call: this thread notices when the GPU has failed.
  void watch(const std::stop_token& stop) {
    cudaSetDevice(options().device.index);
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      ask(cudaStreamQuery);
      never.wait_for(lock, stop, std::chrono::milliseconds(200), [] { return false; });
    }
  }
  void ask(cudaError_t (*about)(cudaStream_t)) noexcept {
    const cudaError_t status = about(stream_);
    if (status == cudaSuccess || status == cudaErrorNotReady || !progress_ || progress_->failed) return;
    try {
      cuda::check(status, options().name.c_str());
    } catch (...) {
      progress_->error = std::current_exception();
      progress_->failed = true;
    }
  }

  cudaStream_t stream_ = nullptr;
  std::mutex mutex_;  // of what follows, and the order of records
  uint64_t records_ = 0;
  Upstream upstream_;
  std::shared_ptr<CudaProgress> progress_;
  std::jthread watch_;
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
