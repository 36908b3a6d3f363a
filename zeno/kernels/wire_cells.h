// Values on their way between ranks in eight or four bits (ZeRO++): 64 neighbours form a cell, with one
// scale, the largest magnitude among them over the largest code. A value is the multiple of the scale that is
// nearest to it, halves to even: it is off by at most half a scale. 8.5 or 4.5 bits per element.
//
// A cell knows nothing of its neighbours, and no cut of a flat buffer goes through one (kFlatAlign): what it
// decodes to does not depend on how many ranks there are. Every device makes the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

namespace zeno {

enum class WireCode { int8, int4 };

inline constexpr int64_t kWireCell = 64;  // elements

// Codes lie before the scale, an fp32 number. int4: two elements per byte, the first in the lower half.
constexpr size_t wire_code_bytes(WireCode code) {
  return size_t(kWireCell) / (code == WireCode::int8 ? 1 : 2);
}
constexpr size_t wire_cell_bytes(WireCode code) { return wire_code_bytes(code) + sizeof(float); }
// Of whole cells.
constexpr size_t wire_bytes(WireCode code, int64_t count) {
  return size_t(count / kWireCell) * wire_cell_bytes(code);
}
// The largest code; the smallest is its negative.
constexpr int wire_limit(WireCode code) { return code == WireCode::int8 ? 127 : 7; }

// Whole cells, no gaps between rows; cells are aligned to 4 bytes. Async. A cell with a value that is not
// finite decodes to NaN.
void wire_encode(StreamRef stream, WireCode code, Tensor x, std::byte* cells);
// Rounded to y's type.
void wire_decode(StreamRef stream, WireCode code, const std::byte* cells, Tensor y);

// Sums of slices that came as cells: y = Σ of `slices` (added to y where it accumulates), in fp32 and in the
// tree of comm/communicator.h, rounded once to y's type. Slice s begins at cells + s · wire_bytes(y.count()).
struct WireSum {
  WireCode code = WireCode::int8;
  const std::byte* cells = nullptr;
  int slices = 1;
  Tensor y;
  bool accumulate = false;
};
inline constexpr int kWireLevels = 16;  // of the tree
inline constexpr int kMostWireSlices = (1 << kWireLevels) - 1;
void wire_sum(StreamRef stream, const WireSum& op);

// What the kernels of every device demand.
void check_wire_cells(std::string_view kernel, const std::byte* cells, const Tensor& values);
void check_wire_sum(const WireSum& op);

}  // namespace zeno
