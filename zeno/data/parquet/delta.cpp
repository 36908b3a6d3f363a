#include "zeno/data/parquet/delta.h"

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/data/parquet/bits.h"
#include "zeno/data/parquet/varint.h"

namespace zeno::data::parquet {
namespace {

constexpr uint64_t kMaxBlock = uint64_t(1) << 24;  // values; writers use 128

}  // namespace

DeltaReader::DeltaReader(std::string_view bytes) : bytes_(bytes) {
  per_block_ = read_varint(bytes_, at_);
  const uint64_t miniblocks = read_varint(bytes_, at_);
  left_ = read_varint(bytes_, at_);
  value_ = uint64_t(unzigzag(read_varint(bytes_, at_)));
  const bool sound = per_block_ > 0 && per_block_ <= kMaxBlock && miniblocks > 0 &&
                     per_block_ % miniblocks == 0 && per_block_ / miniblocks % 8 == 0;
  require(sound, ErrorKind::data,
          "got blocks of {} differences in {} parts, expected parts of a multiple of 8", per_block_,
          miniblocks);
  per_miniblock_ = per_block_ / miniblocks;
}

void DeltaReader::start_miniblock() {
  if (widths_.empty()) {
    min_delta_ = uint64_t(unzigzag(read_varint(bytes_, at_)));
    const size_t miniblocks = size_t(per_block_ / per_miniblock_);
    require(miniblocks <= bytes_.size() - at_, ErrorKind::data, "a block of differences ends early");
    widths_ = bytes_.substr(at_, miniblocks);
    at_ += miniblocks;
  }
  width_ = uint8_t(widths_[0]);
  widths_.remove_prefix(1);
  require(width_ <= 64, ErrorKind::data, "got differences of {} bits, expected at most 64", width_);
  const size_t size = size_t(per_miniblock_) / 8 * size_t(width_);
  require(size <= bytes_.size() - at_, ErrorKind::data, "a block of differences ends early");
  packed_ = bytes_.substr(at_, size);
  at_ += size;
  bit_ = 0;
  in_miniblock_ = per_miniblock_;
}

int64_t DeltaReader::next() {
  require(left_ > 0, ErrorKind::data, "the page has fewer values than it says");
  --left_;
  if (first_) {
    first_ = false;
    return int64_t(value_);
  }
  if (in_miniblock_ == 0) start_miniblock();
  value_ += min_delta_ + load_bits(packed_, bit_, width_);
  bit_ += uint64_t(width_);
  --in_miniblock_;
  return int64_t(value_);
}

std::string_view DeltaReader::rest() const {
  DeltaReader copy = *this;
  uint64_t left = left_ - (first_ && left_ > 0 ? 1 : 0);
  left -= std::min(left, in_miniblock_);
  while (left > 0) {
    copy.start_miniblock();
    left -= std::min(left, per_miniblock_);
  }
  return bytes_.substr(copy.at_);
}

}  // namespace zeno::data::parquet
