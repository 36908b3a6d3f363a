#include "zeno/kernels/cuda/matmul/matmul_sample.h"

#include <algorithm>
#include <cmath>

namespace zeno::cuda {

std::vector<float> sample_output(const MatmulCall& call, cudaStream_t stream,
                                 const std::function<void()>& run) {
  constexpr int64_t kRows = 64;  // at least, where there are as many
  const MatmulKey& key = call.key;
  const size_t width = size_t(key.n) * size_of(key.output), pitch = size_t(key.ldc) * size_of(key.output);
  check(cudaMemset2DAsync(call.c, pitch, 0, width, size_t(key.m), stream), "clear C");
  run();
  std::vector<float> values;
  dispatch_float(key.output, [&]<class T>() {
    std::vector<T> row(size_t(key.n));
    for (int64_t r = 0; r < key.m; r += std::max(key.m / kRows, int64_t(1))) {
      const auto* from = static_cast<const std::byte*>(call.c) + size_t(r) * pitch;
      check(cudaMemcpyAsync(row.data(), from, width, cudaMemcpyDeviceToHost, stream), "read C");
      check(cudaStreamSynchronize(stream), "read C");
      for (const T& value : row) values.push_back(float(value));
    }
  });
  return values;
}

bool agree(std::span<const float> expected, std::span<const float> got) {
  constexpr double kTolerance = 0.02;  // above what bf16 loses, far below a lost tile
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double e = expected[i], d = double(got[i]) - e;
    norm += e * e;
    error += d * d;
  }
  return std::isfinite(norm) && error <= norm * kTolerance * kTolerance;
}

}  // namespace zeno::cuda
