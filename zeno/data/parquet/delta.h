// Parquet's DELTA_BINARY_PACKED: integers as differences to the one before, in blocks of miniblocks that each
// have their own bit width. A view of bytes that the caller owns; holds nothing but positions, however many
// values the bytes claim to be. A copy is a second reader.
#pragma once

#include <cstdint>
#include <string_view>

namespace zeno::data::parquet {

class DeltaReader {
 public:
  DeltaReader() = default;
  explicit DeltaReader(std::string_view bytes);

  // Error(data) after the last value. Differences wrap around.
  int64_t next();
  // What follows the values. Takes as long as there are blocks.
  std::string_view rest() const;

 private:
  void start_miniblock();

  std::string_view bytes_;
  size_t at_ = 0;
  uint64_t per_block_ = 0, per_miniblock_ = 0;  // values
  uint64_t left_ = 0;                           // values not yet given out
  uint64_t value_ = 0;                          // the last one; at the start the first one to come
  bool first_ = true;
  uint64_t min_delta_ = 0;
  std::string_view widths_;  // of the miniblocks of this block that are still to come
  std::string_view packed_;  // this miniblock
  int width_ = 0;
  uint64_t bit_ = 0, in_miniblock_ = 0;  // position in it; values left in it
};

}  // namespace zeno::data::parquet
