// Clocks for the tuner: one matmul on a cool GPU, and many under the power limit.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <span>

namespace zeno::cuda {

// Two events around work on a stream.
class TimedSpan {
 public:
  explicit TimedSpan(cudaStream_t stream);
  ~TimedSpan();
  TimedSpan(const TimedSpan&) = delete;
  TimedSpan& operator=(const TimedSpan&) = delete;

  void begin();
  void end();
  double wait_microseconds();

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

struct SustainedEntry {
  std::function<void()> run;  // queues the matmul once
  double burst = 0;           // µs of one, about
  double sustained = 0;       // result: mean of the windows
  bool finished = false;      // result: took part to the end
};

// Tensor cores at full load meet the power limit of the GPU, which then lowers its clocks: a training step
// runs there, and the algorithm that takes less energy wins, not the one that is ahead in a burst. Keeps the
// GPU at that limit, without a gap, while the entries take turns. Waits for the stream.
void time_sustained(cudaStream_t stream, std::span<SustainedEntry> entries);

}  // namespace zeno::cuda
