// Weights in four bits (NF4, from the QLoRA paper): a value is one of 16 fixed levels, which cut a normal
// distribution into parts of equal weight, times the largest magnitude of its block of 64.
//
// Those magnitudes are kept in 8 bits each: 256 blocks form a cell, whose scales are base + step · q², so
// that one outlier does not coarsen the others. A cell does not depend on its neighbours: it decodes to a
// function of its own elements, wherever the cells of a tensor are. 4.13 bits per element.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "zeno/base/math.h"
#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

namespace zeno {

inline constexpr int64_t kNf4Block = 64;                         // elements with one scale
inline constexpr int64_t kNf4CellBlocks = 256;                   // blocks
inline constexpr int64_t kNf4Cell = kNf4Block * kNf4CellBlocks;  // elements

inline constexpr std::array<float, 16> kNf4Levels{
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};
inline constexpr int kNf4Zero = 7;  // the level that is zero

struct alignas(16) Nf4Cell {
  std::array<uint8_t, kNf4Cell / 2> codes;     // two elements per byte, the first in the upper half
  std::array<uint8_t, kNf4CellBlocks> scales;  // q of each block
  float base, step;
};

// The scale of a block whose q is given.
constexpr float nf4_scale(float base, float step, uint8_t q) { return base + step * float(int(q) * int(q)); }

constexpr int64_t nf4_cells(int64_t count) { return div_ceil(count, kNf4Cell); }
constexpr size_t nf4_bytes(int64_t count) { return size_t(nf4_cells(count)) * sizeof(Nf4Cell); }

// On the host, blocking. Finite values, from the first element of a cell on; what the last cell has beyond
// them decodes to zero.
void nf4_quantise(std::span<const float> values, Nf4Cell* cells);
// On the host, blocking: what kernels decode before they round it to the type of their result.
void nf4_decode_on_host(const Nf4Cell* cells, std::span<float> values);

// y = the values of whole cells, rounded to y's type; no gaps between rows. Async.
void nf4_decode(StreamRef stream, const Nf4Cell* cells, Tensor y);

}  // namespace zeno
