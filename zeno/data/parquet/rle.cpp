#include "zeno/data/parquet/rle.h"

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/data/parquet/bits.h"
#include "zeno/data/parquet/varint.h"

namespace zeno::data::parquet {

RleReader::RleReader(std::string_view bytes, int bit_width) : bytes_(bytes), bit_width_(bit_width) {
  require(bit_width <= 32, ErrorKind::data, "got values of {} bits, expected at most 32", bit_width);
}

void RleReader::start_run() {
  require(at_ < bytes_.size(), ErrorKind::data, "the page has fewer values than it says");
  const uint64_t header = read_varint(bytes_, at_);
  const uint64_t count = header >> 1;
  packed_ = {};
  bit_ = 0;
  value_ = 0;
  if ((header & 1) == 0) {
    const size_t size = size_t(bit_width_ + 7) / 8;
    require(size <= bytes_.size() - at_, ErrorKind::data, "a run ends early");
    value_ = uint32_t(load_little_endian(bytes_.substr(at_, size)));
    at_ += size;
    left_ = count;
    return;
  }
  if (bit_width_ == 0) {
    left_ = count * 8;
    return;
  }
  // Writers may cut the last groups short; next_packed() makes sure that nothing is read after them.
  const uint64_t size = std::min<uint64_t>(count, bytes_.size()) * uint64_t(bit_width_);
  packed_ = bytes_.substr(at_, size_t(std::min<uint64_t>(size, bytes_.size() - at_)));
  at_ += packed_.size();
  left_ = packed_.size() * 8 / size_t(bit_width_);
}

uint32_t RleReader::next_packed() {
  const uint32_t value = uint32_t(load_bits(packed_, bit_, bit_width_));
  bit_ += uint64_t(bit_width_);
  return value;
}

}  // namespace zeno::data::parquet
