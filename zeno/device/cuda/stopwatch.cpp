#include "zeno/device/stopwatch.h"

#include <chrono>
#include <vector>

#include "zeno/device/cuda/runtime.h"

namespace zeno {
namespace {

// Events with timing are read relative to each other, or to one that was recorded when the clock was made.
class CudaStopwatch final : public Stopwatch {
 public:
  CudaStopwatch(int device, size_t marks) : events_(marks, nullptr) {
    cuda::check(cudaSetDevice(device), "choose the device");
    cuda::check(cudaEventCreate(&base_), "create an event");
    cuda::check(cudaEventRecord(base_), "record an event");
    cuda::check(cudaEventSynchronize(base_), "wait for an event");
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    base_us_ = std::chrono::duration<double, std::micro>(now).count();
  }
  ~CudaStopwatch() override {
    cudaEventDestroy(base_);
    for (cudaEvent_t event : events_) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
  void mark(StreamRef stream, size_t index) override {
    cudaEvent_t& event = events_[index];
    if (event == nullptr) cuda::check(cudaEventCreate(&event), "create an event");
    cuda::check(cudaEventRecord(event, cuda::native(stream)), "record an event");
  }
  double us(size_t index) const override { return base_us_ + between(base_, events_[index]); }
  double since(size_t from, size_t to) const override { return between(events_[from], events_[to]); }

 private:
  static double between(cudaEvent_t from, cudaEvent_t to) {
    float ms = 0;
    cuda::check(cudaEventElapsedTime(&ms, from, to), "read an event");
    return double(ms) * 1000;
  }

  cudaEvent_t base_ = nullptr;
  double base_us_ = 0;
  std::vector<cudaEvent_t> events_;
};

}  // namespace

std::unique_ptr<Stopwatch> make_cuda_stopwatch(int device, size_t marks) {
  return std::make_unique<CudaStopwatch>(device, marks);
}

}  // namespace zeno
