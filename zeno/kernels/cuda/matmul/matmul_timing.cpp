#include "zeno/kernels/cuda/matmul/matmul_timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <vector>

#include "zeno/device/cuda/runtime.h"

namespace zeno::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// In µs.
constexpr double kLeastPreheat = 100'000, kMostPreheat = 400'000;
constexpr double kSettle = 20'000, kTimed = 40'000;  // of each window
constexpr double kBridge = 20'000;                   // work for the GPU while the host reads times
constexpr double kBehind = 1.015;                    // further behind after the first round: out

// When the GPU of this thread was last at its limit.
thread_local Clock::time_point last_load{};

int queue_for(const SustainedEntry& entry, double microseconds) {
  const int runs = std::max(int(std::lround(microseconds / std::max(entry.burst, 1.0))), 1);
  for (int i = 0; i < runs; ++i) entry.run();
  return runs;
}

// As long as the GPU was idle, within limits: clocks follow the load of the last tenths of a second.
double preheat_time() {
  const std::chrono::duration<double, std::micro> idle = Clock::now() - last_load;
  return std::clamp(idle.count(), kLeastPreheat, kMostPreheat);
}

struct Window {
  SustainedEntry* entry;
  std::unique_ptr<TimedSpan> span;
  int runs;
};

// All windows are queued before the first is read: the stream never runs dry.
std::vector<double> run_round(cudaStream_t stream, std::span<SustainedEntry* const> entries, bool last) {
  std::vector<Window> windows;
  for (SustainedEntry* entry : entries) {
    queue_for(*entry, kSettle);
    Window window{entry, std::make_unique<TimedSpan>(stream), 0};
    window.span->begin();
    window.runs = queue_for(*entry, kTimed);
    window.span->end();
    windows.push_back(std::move(window));
  }
  if (!last) queue_for(*entries.front(), kBridge);
  std::vector<double> times;
  for (const Window& window : windows) times.push_back(window.span->wait_microseconds() / window.runs);
  return times;
}

}  // namespace

TimedSpan::TimedSpan(cudaStream_t stream) : stream_(stream) {
  check(cudaEventCreate(&begin_), "create an event");
  check(cudaEventCreate(&end_), "create an event");
}
TimedSpan::~TimedSpan() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
}

void TimedSpan::begin() { check(cudaEventRecord(begin_, stream_), "record an event"); }
void TimedSpan::end() { check(cudaEventRecord(end_, stream_), "record an event"); }

double TimedSpan::wait_microseconds() {
  float milliseconds = 0;
  check(cudaEventSynchronize(end_), "wait for a matrix product");
  check(cudaEventElapsedTime(&milliseconds, begin_, end_), "read a time");
  return double(milliseconds) * 1000;
}

void time_sustained(cudaStream_t stream, std::span<SustainedEntry> entries) {
  if (entries.empty()) return;
  std::vector<SustainedEntry*> first;
  for (SustainedEntry& entry : entries) first.push_back(&entry);
  queue_for(entries.front(), preheat_time());
  const std::vector<double> times = run_round(stream, first, false);
  const double best = *std::ranges::min_element(times);
  // The second round runs in reverse order: a candidate that followed a power-hungry one now precedes it.
  std::vector<SustainedEntry*> second;
  for (size_t i = entries.size(); i-- > 0;) {
    entries[i].sustained = times[i];
    entries[i].finished = times[i] <= best * kBehind;
    if (entries[i].finished) second.push_back(&entries[i]);
  }
  const std::vector<double> again = run_round(stream, second, true);
  for (size_t i = 0; i < second.size(); ++i) second[i]->sustained = (second[i]->sustained + again[i]) / 2;
  last_load = Clock::now();
}

}  // namespace zeno::cuda
