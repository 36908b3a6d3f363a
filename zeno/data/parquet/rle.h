// Parquet's RLE encoding of small numbers (levels, dictionary indices, booleans): runs of one value mixed
// with groups of eight values packed to a fixed number of bits. A view of bytes that the caller owns; holds
// nothing but positions, however many values the bytes claim to be.
#pragma once

#include <cstdint>
#include <string_view>

namespace zeno::data::parquet {

class RleReader {
 public:
  RleReader() = default;
  RleReader(std::string_view bytes, int bit_width);

  // Error(data) after the last value.
  uint32_t next() {
    while (left_ == 0) start_run();
    --left_;
    return packed_.empty() ? value_ : next_packed();
  }

 private:
  void start_run();
  uint32_t next_packed();

  std::string_view bytes_;
  size_t at_ = 0;
  int bit_width_ = 0;
  uint64_t left_ = 0;        // values of this run
  uint32_t value_ = 0;       // what a run repeats
  std::string_view packed_;  // the groups of a packed run
  uint64_t bit_ = 0;         // position in them
};

}  // namespace zeno::data::parquet
