// A stream of a device with memory full of random numbers, and a clock for what it sustains. Random, because
// a GPU's clocks depend on the bits that switch.
#pragma once

#include <functional>
#include <vector>

#include "zeno/base/host.h"
#include "zeno/device/buffer.h"
#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

namespace zeno::plan {

// Seconds of one call when calls follow each other without a pause for `duration`: the median over rounds of
// many, without the first third of the time, in which caches, clocks and power settle. `queue` makes a call,
// `wait` returns when all are done.
double sustained_seconds(double duration, const std::function<void()>& queue,
                         const std::function<void()>& wait);

class MeasureBench {
 public:
  // On a CPU with this many threads.
  explicit MeasureBench(Device device, int threads = available_cores());

  StreamRef stream() const { return stream_; }
  // About normal, with a deviation of 0.3. Memory stays for as long as the bench.
  Tensor values(DType dtype, int64_t rows, int64_t cols);
  Tensor bytes(size_t count);
  double seconds(double duration, const std::function<void()>& queue) const {
    return sustained_seconds(duration, queue, [this] { stream_.synchronize(); });
  }

 private:
  std::byte* take(size_t bytes);

  Device device_;
  Ledger ledger_;
  std::vector<Buffer> memory_;
  Stream stream_;
};

}  // namespace zeno::plan
