// Bin packing by best fit, longest first: every item goes into the fullest bin that still has room for it.
// Within 1 % of the least possible number of bins on lengths as texts have them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace zeno::data {

// Items grouped by bin: bin b holds items[starts[b]] .. items[starts[b+1]-1], longest first.
struct Bins {
  std::vector<uint32_t> items;
  std::vector<uint32_t> starts;
};

// Lengths of 1..capacity. Equal lengths are taken in order of index, so the result is a function of the
// arguments. n items take O(n log capacity), with a logarithm to the base 64.
Bins best_fit(std::span<const uint32_t> lengths, uint32_t capacity);

}  // namespace zeno::data
