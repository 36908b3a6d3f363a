// Aligned bytes for tests, filled with a pattern that reads as NaN in every float type, with a guard behind
// them: a kernel that reads what nobody wrote, or writes past its end, is seen.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "zeno/base/math.h"
#include "zeno/device/tensor.h"

namespace zeno::test {

class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t bytes)
      : bytes_(bytes),
        data_(static_cast<std::byte*>(std::aligned_alloc(64, round_up(bytes, size_t(64)) + kGuard))) {
    poison();
    std::memset(data_.get() + bytes_, kGuardByte, round_up(bytes, size_t(64)) + kGuard - bytes);
  }
  Memory(DType dtype, int64_t rows, int64_t cols) : Memory(size_t(rows * cols) * size_of(dtype)) {
    view_ = {data_.get(), dtype, rows, cols};
  }

  Tensor view() const { return view_; }
  // All bytes as u8; an empty view when there are none.
  Tensor bytes() const { return bytes_ == 0 ? Tensor{} : Tensor{data_.get(), DType::u8, 1, int64_t(bytes_)}; }
  void poison() { std::memset(data_.get(), 0xff, bytes_); }
  void zero() { std::memset(data_.get(), 0, bytes_); }
  void check_guard() const {
    for (size_t i = bytes_; i < round_up(bytes_, size_t(64)) + kGuard; ++i)
      ASSERT_EQ(data_[i], std::byte(kGuardByte)) << "written " << i - bytes_ << " bytes past the end";
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr int kGuardByte = 0xa5;
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  size_t bytes_ = 0;
  std::unique_ptr<std::byte[], Free> data_;
  Tensor view_;
};

inline std::vector<float> to_floats(Tensor t) {
  std::vector<float> out;
  dispatch_float(t.dtype, [&]<class T>() {
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t c = 0; c < t.cols; ++c) out.push_back(float(t.row<T>(r)[c]));
  });
  return out;
}

inline void from_floats(const std::vector<float>& values, Tensor t) {
  dispatch_float(t.dtype, [&]<class T>() {
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t c = 0; c < t.cols; ++c) t.row<T>(r)[c] = T(values[size_t(r * t.cols + c)]);
  });
}

// ‖a − b‖ / ‖b‖ in double; NaN anywhere gives NaN, which fails every comparison.
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, reference = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
    reference += double(b[i]) * b[i];
  }
  if (difference == 0) return 0;
  return std::sqrt(difference / reference);
}

}  // namespace zeno::test
