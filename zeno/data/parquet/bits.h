// Little-endian numbers at any byte and any bit. Pure functions.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace zeno::data::parquet {

// The first eight bytes, or all there are.
inline uint64_t load_little_endian(std::string_view bytes) {
  uint64_t value = 0;
  if (bytes.size() >= sizeof(value)) {
    std::memcpy(&value, bytes.data(), sizeof(value));
  } else {
    std::memcpy(&value, bytes.data(), bytes.size());
  }
  return value;
}

// `width` bits (0 to 64) from position `bit` on, lowest first. They must lie within `bytes`.
inline uint64_t load_bits(std::string_view bytes, uint64_t bit, int width) {
  if (width == 0) return 0;
  const size_t at = size_t(bit / 8);
  const int shift = int(bit % 8);
  uint64_t value = load_little_endian(bytes.substr(at)) >> shift;
  if (shift + width > 64) value |= uint64_t(uint8_t(bytes[at + 8])) << (64 - shift);
  return width == 64 ? value : value & ((uint64_t(1) << width) - 1);
}

}  // namespace zeno::data::parquet
