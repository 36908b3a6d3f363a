// Cuts a range of bytes into aligned tensors. The same calls on a Layout without memory only count, so the
// size a layer declares and the views it uses come from one piece of code. Rewinding to a mark reuses bytes
// whose tensors are no longer needed. A small value; no thread rule.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/device/tensor.h"

namespace zeno::nn {

class Layout {
 public:
  static constexpr size_t kAlignment = 64;

  // Counts only: views have a shape and no data.
  Layout() = default;
  // Cuts `bytes` (u8, aligned); asking for more than there is, is an internal error.
  explicit Layout(Tensor bytes) : base_(bytes.data), capacity_(bytes.bytes()), counting_(false) {
    ensure(reinterpret_cast<uintptr_t>(base_) % kAlignment == 0, "[layout] bytes are not aligned to {}",
           kAlignment);
  }

  Tensor take(DType dtype, int64_t rows, int64_t cols) {
    const size_t begin = used_;
    used_ = round_up(begin + size_t(rows * cols) * size_of(dtype), kAlignment);
    peak_ = std::max(peak_, used_);
    if (counting_) return {nullptr, dtype, rows, cols};
    ensure(used_ <= capacity_, "[layout] got {} bytes, expected at least {}; use what sizes() says",
           capacity_, used_);
    return {base_ + begin, dtype, rows, cols};
  }

  size_t mark() const { return used_; }
  void rewind(size_t mark) { used_ = mark; }
  // Peak bytes in use.
  size_t peak() const { return peak_; }

 private:
  std::byte* base_ = nullptr;
  size_t capacity_ = 0, used_ = 0, peak_ = 0;
  bool counting_ = true;
};

}  // namespace zeno::nn
