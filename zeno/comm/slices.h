// Which part of a reduction or an exchange belongs to which rank: equal slices of `count` elements, or, for
// all_reduce, one vector of `count` elements divided between the ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "zeno/comm/cost.h"

namespace zeno::comm {

struct Slices {
  int ranks = 1;
  int64_t count = 0;
  bool divides_count = false;

  // First element of a rank's slice in the send buffer.
  int64_t begin(int rank) const {
    return divides_count ? all_reduce_slice(ranks, rank, count).begin : rank * count;
  }
  int64_t size(int rank) const { return divides_count ? all_reduce_slice(ranks, rank, count).size() : count; }
  // How many of the elements [a, b) of a slice are in the slice of `rank`.
  int64_t length(int rank, int64_t a, int64_t b) const {
    return std::max<int64_t>(0, std::min(b, size(rank)) - a);
  }
  int64_t longest() const { return size(0); }
};

// Slices of an all_to_all, one after the other by rank, of different sizes.
class RankSlices {
 public:
  explicit RankSlices(std::span<const int64_t> counts) {
    for (const int64_t count : counts) borders_.push_back(borders_.back() + count);
  }
  int64_t begin(int rank) const { return borders_[size_t(rank)]; }
  int64_t size(int rank) const { return borders_[size_t(rank) + 1] - begin(rank); }
  int64_t total() const { return borders_.back(); }
  int64_t total_without(int rank) const { return total() - size(rank); }

 private:
  std::vector<int64_t> borders_{0};
};

// One part of an all_to_all as one rank sees it.
struct ExchangeSlices {
  RankSlices sent, received;

  ExchangeSlices(std::span<const int64_t> send_counts, std::span<const int64_t> recv_counts)
      : sent(send_counts), received(recv_counts) {}
};

}  // namespace zeno::comm
