#include "zeno/device/stopwatch.h"

#include <chrono>
#include <vector>

#include "zeno/device/cuda/memory.h"

namespace zeno {
namespace {

class CpuStopwatch final : public Stopwatch {
 public:
  explicit CpuStopwatch(size_t marks) : times_(marks, 0.0) {}
  void mark(StreamRef stream, size_t index) override {
    stream.launch([time = &times_[index]](Workers&) {
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      *time = std::chrono::duration<double, std::micro>(now).count();
    });
  }
  double us(size_t index) const override { return times_[index]; }
  double since(size_t from, size_t to) const override { return times_[to] - times_[from]; }

 private:
  std::vector<double> times_;
};

}  // namespace

std::unique_ptr<Stopwatch> make_stopwatch(Device device, size_t marks) {
  if (device.kind == Device::Kind::cuda) return make_cuda_stopwatch(device.index, marks);
  return std::make_unique<CpuStopwatch>(marks);
}

}  // namespace zeno
