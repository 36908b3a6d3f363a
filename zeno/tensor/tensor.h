// A typed view of memory owned elsewhere. Rows may be wider than the view (a slice of a packed matrix): `stride`
// is the distance between rows in elements; everything inside a row is contiguous.
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
  Tensor(void* data, DType dtype, int64_t rows, int64_t cols)
      : data(static_cast<std::byte*>(data)), dtype(dtype), rows(rows), cols(cols), stride(cols) {}
  Tensor(void* data, DType dtype, int64_t rows, int64_t cols, int64_t stride)
      : data(static_cast<std::byte*>(data)), dtype(dtype), rows(rows), cols(cols), stride(stride) {}

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

  // Columns [begin, begin + count) of every row.
  Tensor columns(int64_t begin, int64_t count) const {
    return {data + size_t(begin) * size_of(dtype), dtype, rows, count, stride};
  }
  // Rows [begin, begin + count).
  Tensor slice(int64_t begin, int64_t count) const {
    return {data + size_t(begin * stride) * size_of(dtype), dtype, count, cols, stride};
  }
};

}  // namespace zeno
