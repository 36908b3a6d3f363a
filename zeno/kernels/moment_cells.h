// Optimizer moments in eight bits. A cell holds 64 neighbouring elements, which share a power of two: the
// exponent of the largest of them. A code is a small float below it, so that converting is work on bits, the
// same on every device; moment_code.h has the format and the reasons.
//
// What is stored follows from the values alone: decoding and encoding again gives the same bytes, whatever
// the noise. So a checkpoint may keep fp32 values and resume exactly. Memory filled with zero bytes is zeros.
// Cells know nothing of their neighbours, and a block of kFlatAlign elements is one: no cut of the states
// divides it. A Tensor of them has dtype u8, the count of elements, and the first cell as its address (its
// columns() means bytes: cut it with moment_bytes). 8.5 bits per element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "zeno/base/math.h"
#include "zeno/kernels/stochastic_rounding.h"

namespace zeno {

inline constexpr int64_t kMomentCell = 64;  // elements

struct MomentCell {
  uint32_t exponent;  // of the largest magnitude; 0 also for everything below
  uint8_t codes[kMomentCell];
};
static_assert(sizeof(MomentCell) == 68 && alignof(MomentCell) == 4);

constexpr int64_t moment_cells(int64_t count) { return div_ceil(count, kMomentCell); }
// Of `count` elements; where a multiple of kMomentCell begins, too.
constexpr size_t moment_bytes(int64_t count) { return size_t(moment_cells(count)) * sizeof(MomentCell); }

// On the host, blocking, for m or v: rounds to the nearest code. From the first element of a cell on; what
// the last cell has beyond the values becomes zero.
void encode_moments(std::span<const float> values, StateRole role, MomentCell* cells);
void decode_moments(const MomentCell* cells, StateRole role, std::span<float> values);

}  // namespace zeno
