// A typed view of memory owned elsewhere. Rows may be wider than the view (a slice of a packed matrix):
// `stride` is the distance between rows in elements; everything inside a row is contiguous.
#pragma once

#include <cstddef>
#include <cstdint>

#include "zeno/base/dtype.h"

namespace zeno {

struct Tensor {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  Tensor() = default;
  Tensor(void* at, DType type, int64_t height, int64_t width) : Tensor(at, type, height, width, width) {}
  Tensor(void* at, DType type, int64_t height, int64_t width, int64_t row_stride)
      : data(static_cast<std::byte*>(at)), dtype(type), rows(height), cols(width), stride(row_stride) {}

  explicit operator bool() const { return data != nullptr; }
  int64_t count() const { return rows * cols; }
  bool contiguous() const { return stride == cols || rows <= 1; }
  size_t bytes() const { return size_t(count()) * size_of(dtype); }

  template <class T>
  T* as() const {
    ensure(dtype_of<T>() == dtype, "[tensor] is {}, used as {}", name_of(dtype), name_of(dtype_of<T>()));
    return reinterpret_cast<T*>(data);
  }
  template <class T>
  T* row(int64_t i) const {
    return as<T>() + i * stride;
  }

  // Columns [begin, begin + width) of every row.
  Tensor columns(int64_t begin, int64_t width) const {
    return {data + size_t(begin) * size_of(dtype), dtype, rows, width, stride};
  }
  // Rows [begin, begin + height).
  Tensor slice(int64_t begin, int64_t height) const {
    return {data + size_t(begin * stride) * size_of(dtype), dtype, height, cols, stride};
  }
};

}  // namespace zeno
