// An fp32 master and its bf16 copy have half their bits in common. If the two stay together, only the
// difference to the master is kept beside the copy: 16 bits that, appended to those of the copy, give the
// master exactly. For that the copy is the nearest bf16 and, of two that are equally near, the one further
// from zero: then the sign of the rest says which way the copy was rounded. All copies of masters are made by
// this rule, so that the storage of masters does not change results. NaNs are truncated and made quiet
// instead, because rounding might turn them into -0: copy and master stay NaNs, if not always the same.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "zeno/base/float16.h"
#include "zeno/base/host_device.h"

namespace zeno {

ZENO_HOST_DEVICE constexpr uint16_t master_copy(uint32_t master) {
  const bool nan = (master & 0x7fffffffu) > 0x7f800000u;
  return uint16_t(nan ? master >> 16 | 0x40u : (master + 0x8000u) >> 16);
}
ZENO_HOST_DEVICE constexpr int16_t master_rest(uint32_t master) { return int16_t(uint16_t(master)); }
ZENO_HOST_DEVICE constexpr uint32_t joined_master(uint16_t copy, int16_t rest) {
  return (uint32_t(copy) << 16) + uint32_t(int32_t(rest));
}

// From and to fp32 masters at any address.
inline void join_masters(std::span<const uint16_t> copies, std::span<const int16_t> rests,
                         std::byte* masters) {
  for (size_t i = 0; i < copies.size(); ++i) {
    const uint32_t master = joined_master(copies[i], rests[i]);
    std::memcpy(masters + i * sizeof(master), &master, sizeof(master));
  }
}
inline void split_masters(const std::byte* masters, std::span<uint16_t> copies, std::span<int16_t> rests) {
  for (size_t i = 0; i < copies.size(); ++i) {
    uint32_t master;
    std::memcpy(&master, masters + i * sizeof(master), sizeof(master));
    copies[i] = master_copy(master);
    rests[i] = master_rest(master);
  }
}

// The copy in a compute type.
template <class T>
T copy_of_master(float master) {
  return T(master);
}
template <>
inline BF16 copy_of_master<BF16>(float master) {
  return std::bit_cast<BF16>(master_copy(std::bit_cast<uint32_t>(master)));
}

}  // namespace zeno
