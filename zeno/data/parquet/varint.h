// Numbers of one to ten bytes, seven bits each, lowest first; negative ones are folded between the positive
// ("zigzag"). Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "zeno/base/error.h"

namespace zeno::data::parquet {

// Reads at bytes[at] and moves `at` behind it. An Error(data) where the bytes end or the number does not.
inline uint64_t read_varint(std::string_view bytes, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    require(at < bytes.size(), ErrorKind::data, "a number ends early");
    const auto byte = uint8_t(bytes[at++]);
    value |= uint64_t(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail(ErrorKind::data, "a number has more than ten bytes");
}

inline int64_t unzigzag(uint64_t value) { return int64_t(value >> 1) ^ -int64_t(value & 1); }

}  // namespace zeno::data::parquet
