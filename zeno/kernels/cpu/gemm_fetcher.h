// Brings a rectangle of memory into the L2 cache a few lines at a time, between pieces of other work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "zeno/base/math.h"

namespace zeno {

struct Region {
  const std::byte* data = nullptr;
  int64_t rows = 0, row_bytes = 0, stride = 0;  // stride: bytes from row to row
};

class Fetcher {
 public:
  Fetcher() = default;
  explicit Fetcher(const Region& region)
      : at_(region.data),
        rows_left_(region.rows),
        row_lines_(div_ceil(region.row_bytes, kLine)),
        skip_(region.stride - row_lines_ * kLine) {
    line_ = row_lines_;
  }

  int64_t lines() const { return rows_left_ * row_lines_; }

  void fetch(int64_t lines) {
    for (; lines > 0 && rows_left_ > 0; --lines) {
      __builtin_prefetch(at_, 0, 2);
      at_ += kLine;
      if (--line_ == 0) {
        at_ += skip_;
        line_ = row_lines_;
        --rows_left_;
      }
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  const std::byte* at_ = nullptr;
  int64_t rows_left_ = 0, row_lines_ = 0, skip_ = 0, line_ = 0;
};

}  // namespace zeno
