#include "zeno/plan/machine/measure_bench.h"

#include <algorithm>
#include <chrono>

#include "zeno/base/rng.h"
#include "zeno/device/copy.h"
#include "zeno/kernels/matmul.h"

namespace zeno::plan {
namespace {

// The sum of three numbers of 21 bits each is near to normal.
template <class T>
std::vector<T> random_values() {
  std::vector<T> values((1 << 20) - 3);  // odd: repeated in a matrix, its rows still differ
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = mix64(i);
    const int64_t sum = int64_t(bits >> 43) + int64_t(bits >> 22 & 0x1fffff) + int64_t(bits & 0x1fffff);
    values[i] = T(0.3f * 0x1p-20f * float(sum - (3 << 20)));
  }
  return values;
}

}  // namespace

double sustained_seconds(double duration, const std::function<void()>& queue,
                         const std::function<void()>& wait) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  constexpr int kRounds = 16, kLeast = 3;
  queue();
  wait();
  const auto start = Clock::now();
  std::vector<double> rounds;
  int64_t calls = 1;
  while (seconds_since(start) < duration || rounds.size() < kLeast) {
    const bool settled = seconds_since(start) >= duration / 3;
    const auto begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) queue();
    wait();
    const double time = seconds_since(begin);
    if (settled) rounds.push_back(time / double(calls));
    if (time < duration / kRounds) calls *= 2;
  }
  std::ranges::nth_element(rounds, rounds.begin() + long(rounds.size() / 2));
  return rounds[rounds.size() / 2];
}

MeasureBench::MeasureBench(Device device, int threads)
    : device_(device), stream_([&] {
        const size_t scratch = kernel_scratch_bytes(device.kind);
        const size_t pieces = device.kind == Device::Kind::cpu ? size_t(threads) : 1;
        return StreamOptions{.device = device,
                             .name = "measure",
                             .threads = threads,
                             .scratch = take(pieces * scratch),
                             .scratch_bytes = scratch};
      }()) {}

std::byte* MeasureBench::take(size_t bytes) {
  ledger_.book(Tier::device, Purpose::workspace, bytes);
  return memory_.emplace_back(ledger_, Tier::device, Purpose::workspace, bytes, allocator_of(device_)).data();
}

Tensor MeasureBench::values(DType dtype, int64_t rows, int64_t cols) {
  const Tensor tensor(take(size_t(rows * cols) * size_of(dtype)), dtype, rows, cols);
  dispatch_float(dtype, [&]<class T>() {
    const std::vector<T> pattern = random_values<T>();
    for (int64_t at = 0; at < tensor.count(); at += int64_t(pattern.size())) {
      const int64_t count = std::min(tensor.count() - at, int64_t(pattern.size()));
      copy_async(stream_, tensor.data + size_t(at) * sizeof(T),
                 reinterpret_cast<const std::byte*>(pattern.data()), size_t(count) * sizeof(T));
    }
    stream_.synchronize();
  });
  return tensor;
}

Tensor MeasureBench::bytes(size_t count) { return {take(count), DType::u8, 1, int64_t(count)}; }

}  // namespace zeno::plan
