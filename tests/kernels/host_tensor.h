// A tensor with its memory, for kernel tests: filled from a seed, read and written as double, compared to the
// bit.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <new>
#include <vector>

#include "tests/support/kernel_stream.h"
#include "zeno/base/rng.h"
#include "zeno/device/tensor.h"

namespace zeno {

inline constexpr DType kFloatTypes[] = {DType::f32, DType::bf16, DType::f16};

// 64-byte alignment, as real buffers have: vector stores past the cache depend on it.
template <class T>
struct LineAllocator {
  using value_type = T;
  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64))); }
  void deallocate(T* p, size_t) { ::operator delete(p, std::align_val_t(64)); }
  bool operator==(const LineAllocator&) const = default;
};
using Bytes = std::vector<std::byte, LineAllocator<std::byte>>;

class HostTensor {
 public:
  HostTensor(DType dtype, int64_t rows, int64_t cols, int64_t stride = 0)
      : dtype_(dtype), rows_(rows), cols_(cols), stride_(stride ? stride : cols) {
    // The last row ends with its last column, so that AddressSanitizer sees a step too far.
    bytes_.resize(size_t((rows - 1) * stride_ + cols) * size_of(dtype), std::byte(0));
  }

  Tensor view() { return {bytes_.data(), dtype_, rows_, cols_, stride_}; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  DType dtype() const { return dtype_; }

  double get(int64_t r, int64_t c) const {
    const size_t i = size_t(r * stride_ + c);
    if (dtype_ == DType::i32) return reinterpret_cast<const int32_t*>(bytes_.data())[i];
    return dispatch_float(dtype_,
                          [&]<class T>() { return float(reinterpret_cast<const T*>(bytes_.data())[i]); });
  }
  void set(int64_t r, int64_t c, double value) {
    const size_t i = size_t(r * stride_ + c);
    if (dtype_ == DType::i32) {
      reinterpret_cast<int32_t*>(bytes_.data())[i] = int32_t(value);
    } else {
      dispatch_float(dtype_, [&]<class T>() { reinterpret_cast<T*>(bytes_.data())[i] = T(float(value)); });
    }
  }
  HostTensor& random(uint64_t seed, double scale = 1, double shift = 0) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c)
        set(r, c, shift + scale * random_normal(seed, 7, uint64_t(r * cols_ + c)));
    }
    return *this;
  }
  HostTensor& random_ids(uint64_t seed, int64_t bound) {
    for (int64_t i = 0; i < rows_ * cols_; ++i) {
      set(i / cols_, i % cols_, double(random_bits(seed, 3, uint64_t(i)) % uint64_t(bound)));
    }
    return *this;
  }
  std::vector<double> values() const {
    std::vector<double> out;
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) out.push_back(get(r, c));
    }
    return out;
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  DType dtype_;
  int64_t rows_, cols_, stride_;
  Bytes bytes_;
};

// Half a unit in the last place of a value rounded to dtype, relative.
inline double rounding_of(DType dtype) {
  return dtype == DType::f32 ? 0x1p-24 : dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
}

// |actual - expected| within the rounding of the storage type, plus `slack` (absolute, for fp32 arithmetic
// inside).
inline void expect_close(const HostTensor& actual, const std::vector<double>& expected, double slack,
                         const std::string& what) {
  const std::vector<double> got = actual.values();
  ASSERT_EQ(got.size(), expected.size()) << what;
  const double tiny = actual.dtype() == DType::f16 ? 0x1p-25 : 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double limit = std::abs(expected[i]) * rounding_of(actual.dtype()) * 1.01 + tiny + slack;
    ASSERT_NEAR(got[i], expected[i], limit) << what << " element " << i << " " << name_of(actual.dtype());
  }
}

// Runs `body` on a stream and waits.
inline void run_on(int threads, const std::function<void(StreamRef)>& body) {
  KernelStream stream(threads);
  body(stream.ref());
  stream.sync();
}

// d f / d x[i] by central differences; f is a double-precision function of `x`.
inline std::vector<double> numeric_gradient(std::vector<double> x,
                                            const std::function<double(const std::vector<double>&)>& f) {
  std::vector<double> gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i], h = 1e-5 * std::max(1.0, std::abs(at));
    x[i] = at + h;
    const double above = f(x);
    x[i] = at - h;
    gradient[i] = (above - f(x)) / (2 * h);
    x[i] = at;
  }
  return gradient;
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace zeno
