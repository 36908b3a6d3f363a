// The same kernel on the CPU and on the GPU, on the same random input. The CPU kernels are proven by finite
// differences and golden files; what the GPU must show is that it computes the same function.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "zeno/device/buffer.h"
#include "zeno/device/copy.h"
#include "zeno/device/device.h"
#include "zeno/device/ledger.h"
#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"
#include "zeno/kernels/matmul.h"

namespace zeno::cuda_tests {

// One tensor on both devices. `cpu` is a view of host memory, `gpu` of device memory.
struct Twin {
  Tensor cpu, gpu;
  operator bool() const { return bool(cpu); }
};

class Parity : public ::testing::Test {
 protected:
  Parity()
      : scratch_(allocate_host(kernel_scratch_bytes())),
        cpu({.name = "cpu", .scratch = scratch_.data, .scratch_bytes = kernel_scratch_bytes()}) {
    blocks_.push_back(scratch_);
  }

  void SetUp() override {
    if (device_count(Device::Kind::cuda) == 0) GTEST_SKIP() << "no GPU";
    const size_t bytes = kernel_scratch_bytes(Device::Kind::cuda);
    blocks_.push_back(allocator_of({Device::Kind::cuda, 0})(bytes));
    gpu.emplace(StreamOptions{.device = {Device::Kind::cuda, 0},
                              .name = "gpu",
                              .scratch = blocks_.back().data,
                              .scratch_bytes = bytes});
  }
  void TearDown() override {
    cpu.synchronize();
    gpu.reset();
    for (const Block& block : blocks_) block.release(block.data);
  }

  // Normal values, the same on both devices (rounded to dtype first). stride 0: contiguous.
  Twin normal(DType dtype, int64_t rows, int64_t cols, uint64_t seed, double stddev = 1, double mean = 0,
              int64_t stride = 0) {
    Twin twin = allocate(dtype, rows, cols, stride);
    std::mt19937_64 engine(seed);
    std::normal_distribution<float> value{float(mean), float(stddev)};
    fill(twin, [&](int64_t, int64_t) { return value(engine); });
    return twin;
  }
  Twin zeros(DType dtype, int64_t rows, int64_t cols) {
    Twin twin = allocate(dtype, rows, cols, 0);
    if (dtype == DType::i32 || dtype == DType::u8) {
      std::memset(twin.cpu.data, 0, twin.cpu.bytes());
      upload(twin);
    } else {
      fill(twin, [](int64_t, int64_t) { return 0.0f; });
    }
    return twin;
  }
  // Output: NaN (or -7 for integers) everywhere, so that an element that is not written shows.
  Twin poison(DType dtype, int64_t rows, int64_t cols) {
    Twin twin = allocate(dtype, rows, cols, 0);
    std::memset(twin.cpu.data, 0xff, twin.cpu.bytes());
    upload(twin);
    return twin;
  }
  Twin ints(const std::vector<int32_t>& values) {
    Twin twin = allocate(DType::i32, 1, int64_t(values.size()), 0);
    std::memcpy(twin.cpu.data, values.data(), twin.cpu.bytes());
    upload(twin);
    return twin;
  }
  // 16 random bits each: what is left of split masters.
  Twin rests(int64_t count, uint64_t seed) {
    Twin twin = allocate(DType::i16, 1, count, 0);
    std::mt19937_64 engine(seed);
    for (int64_t i = 0; i < count; ++i) twin.cpu.as<int16_t>()[i] = int16_t(uint16_t(engine()));
    upload(twin);
    return twin;
  }
  Twin workspace(size_t bytes) { return bytes == 0 ? Twin{} : zeros(DType::u8, 1, int64_t(bytes)); }

  std::vector<double> on_cpu(const Twin& twin) {
    cpu.synchronize();
    return values_of(twin.cpu);
  }
  std::vector<double> on_gpu(const Twin& twin) {
    std::vector<std::byte> bytes(span(twin.gpu));
    copy_async(*gpu, bytes.data(), twin.gpu.data, bytes.size());
    gpu->synchronize();
    Tensor host = twin.gpu;
    host.data = bytes.data();
    return values_of(host);
  }
  // ‖gpu − cpu‖ / ‖cpu‖; NaN when either has one.
  double difference(const Twin& twin) {
    const std::vector<double> a = on_cpu(twin), b = on_gpu(twin);
    double error = 0, norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      error += (a[i] - b[i]) * (a[i] - b[i]);
      norm += a[i] * a[i];
    }
    return std::sqrt(error / std::max(norm, 1e-30));
  }
  // Largest |gpu − cpu|.
  double largest_gap(const Twin& twin) {
    const std::vector<double> a = on_cpu(twin), b = on_gpu(twin);
    double gap = 0;
    for (size_t i = 0; i < a.size(); ++i)
      gap = std::max(gap, std::isnan(b[i]) ? INFINITY : std::abs(a[i] - b[i]));
    return gap;
  }
  // What results stored in `dtype` may differ by: both round once, at places that may differ.
  static double tolerance(DType dtype) {
    return dtype == DType::f32 ? 2e-6 : dtype == DType::f16 ? 1e-3 : 6e-3;
  }

  void upload(const Twin& twin) {
    copy_async(*gpu, twin.gpu.data, twin.cpu.data, span(twin.cpu));
    gpu->synchronize();
  }

  std::vector<Block> blocks_;
  Block scratch_;  // aligned, as the CPU kernels want it
  Stream cpu;
  std::optional<Stream> gpu;

 private:
  static size_t span(const Tensor& t) {
    return t.rows == 0 ? 0 : size_t((t.rows - 1) * t.stride + t.cols) * size_of(t.dtype);
  }
  Twin allocate(DType dtype, int64_t rows, int64_t cols, int64_t stride) {
    if (stride == 0) stride = cols;
    Twin twin{{nullptr, dtype, rows, cols, stride}, {nullptr, dtype, rows, cols, stride}};
    const size_t bytes = std::max<size_t>(span(twin.cpu), 1);
    blocks_.push_back(allocate_host(bytes));
    twin.cpu.data = blocks_.back().data;
    blocks_.push_back(allocator_of({Device::Kind::cuda, 0})(bytes));
    twin.gpu.data = blocks_.back().data;
    return twin;
  }
  template <class Value>
  void fill(const Twin& twin, const Value& value) {
    dispatch_float(twin.cpu.dtype, [&]<class T>() {
      for (int64_t r = 0; r < twin.cpu.rows; ++r) {
        for (int64_t c = 0; c < twin.cpu.cols; ++c) twin.cpu.row<T>(r)[c] = T(value(r, c));
      }
    });
    upload(twin);
  }
  static std::vector<double> values_of(const Tensor& t) {
    std::vector<double> values;
    const auto take = [&]<class T>() {
      for (int64_t r = 0; r < t.rows; ++r) {
        for (int64_t c = 0; c < t.cols; ++c) values.push_back(double(float(t.row<T>(r)[c])));
      }
    };
    if (t.dtype == DType::i32) {
      take.template operator()<int32_t>();
    } else if (t.dtype == DType::i16) {
      take.template operator()<int16_t>();
    } else {
      dispatch_float(t.dtype, [&]<class T>() { take.template operator()<T>(); });
    }
    return values;
  }
};

}  // namespace zeno::cuda_tests
