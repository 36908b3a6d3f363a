// Cells of moments encoded and decoded one value at a time: what vector code must give.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "zeno/kernels/moment_cells.h"
#include "zeno/kernels/moment_code.h"

namespace zeno {

using Noise = std::array<uint32_t, kMomentCell>;  // of StochasticRounding

template <StateRole kRole>
MomentCell encoded(const std::array<float, kMomentCell>& values, const Noise& noise) {
  using Code = MomentCode<kRole>;
  const auto below = [&](size_t i) { return Code::below(noise[i]); };
  uint32_t largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, Code::rounded(std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu, below(i)));
  }
  MomentCell cell{.exponent = Code::cell_exponent(largest), .codes = {}};
  for (size_t i = 0; i < values.size(); ++i) {
    cell.codes[i] = Code::encode(values[i], below(i), cell.exponent);
  }
  return cell;
}

template <StateRole kRole>
std::array<float, kMomentCell> decoded(const MomentCell& cell) {
  std::array<float, kMomentCell> values;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = MomentCode<kRole>::decode(cell.codes[i], cell.exponent);
  }
  return values;
}

}  // namespace zeno
