// Reads a range of a file from front to back and can look ahead. Keeps a small window; large reads go past
// it. The file outlives it; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "zeno/base/file.h"

namespace zeno::data::parquet {

class ForwardReader {
 public:
  // Bytes [begin, end) of the file, which has them.
  ForwardReader(const File& file, uint64_t begin, uint64_t end) : file_(&file), at_(begin), end_(end) {}

  uint64_t left() const { return end_ - at_; }
  // The next `bytes` or more; fewer at the end of the range. Valid until the next call.
  std::string_view peek(size_t bytes);
  // REQUIRES: no more than are left.
  void read(char* out, size_t bytes);
  void skip(size_t bytes);

 private:
  std::string_view window() const { return std::string_view(window_).substr(used_); }

  const File* file_;
  uint64_t at_, end_;
  std::string window_;  // its bytes from used_ on are those of the file from at_ on
  size_t used_ = 0;
};

}  // namespace zeno::data::parquet
