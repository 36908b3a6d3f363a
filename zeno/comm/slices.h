// Which part of a reduction or an exchange belongs to which rank: equal slices of `count` elements, or, for
// all_reduce, one vector of `count` elements divided between the ranks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "zeno/comm/cost.h"

namespace zeno::comm {

struct Slices {
  int ranks = 1;
  int64_t count = 0;
  bool divides_count = false;

  // First element of a rank's slice, in what is sent.
  int64_t begin(int rank) const {
    return divides_count ? all_reduce_slice(ranks, rank, count).begin : rank * count;
  }
  int64_t size(int rank) const { return divides_count ? all_reduce_slice(ranks, rank, count).size() : count; }
  // Elements [a, b) of a slice, as far as the slice of `rank` has them.
  int64_t length(int rank, int64_t a, int64_t b) const {
    return std::max<int64_t>(0, std::min(b, size(rank)) - a);
  }
  int64_t longest() const { return size(0); }
};

}  // namespace zeno::comm
