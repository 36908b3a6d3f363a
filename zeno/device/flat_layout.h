// Tensors laid out one after another in one flat buffer of elements. Starts are aligned, so that a block of
// kFlatAlign elements never holds parts of two tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "zeno/base/math.h"

namespace zeno {

inline constexpr int64_t kFlatAlign = 64;  // elements: 256 bytes in fp32, 128 in 16 bits

struct FlatTensor {
  int id = 0;          // the caller's name for it
  int64_t offset = 0;  // elements from the start of the flat buffer
  int64_t rows = 0, cols = 0;

  int64_t count() const { return rows * cols; }
  int64_t end() const { return offset + count(); }
};

class FlatLayout {
 public:
  // `align` is a multiple of kFlatAlign.
  explicit FlatLayout(int64_t align = kFlatAlign) : align_(align) {}

  void add(int id, int64_t rows, int64_t cols) {
    tensors_.push_back({id, size_, rows, cols});
    size_ += round_up(rows * cols, align_);
  }
  const std::vector<FlatTensor>& tensors() const { return tensors_; }
  // Elements up to the end of the last tensor, rounded up.
  int64_t size() const { return size_; }

 private:
  std::vector<FlatTensor> tensors_;
  int64_t align_, size_ = 0;
};

}  // namespace zeno
