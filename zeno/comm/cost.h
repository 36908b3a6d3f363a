// What each collective costs a rank: how often it meets the others, and the bytes it sends to them. Both the
// planner and the Traffic counters of the communicators call these functions.
//
// `count` is the count of the call (communicator.h), `ranks` the world size. Bytes received equal bytes sent,
// except for broadcast and all_to_all with unequal counts, where the larger of the two is given.
#pragma once

#include <cstdint>

#include "zeno/base/dtype.h"

namespace zeno::comm {

struct Cost {
  int64_t steps = 0;  // rendezvous, each of which costs a latency
  int64_t bytes = 0;  // bandwidth

  bool operator==(const Cost&) const = default;
  Cost& operator+=(const Cost& other) {
    steps += other.steps;
    bytes += other.bytes;
    return *this;
  }
};

Cost all_gather_cost(int ranks, int64_t count, DType dtype);
Cost reduce_scatter_cost(int ranks, int64_t count, DType dtype);
// Slices differ by rank when the count does not divide evenly.
Cost all_reduce_cost(int ranks, int rank, int64_t count, DType dtype);
Cost broadcast_cost(int ranks, bool root, int64_t count, DType dtype);
Cost all_to_all_cost(int ranks, int64_t count, DType dtype);
// Unequal counts: the elements that a rank sends to the others and receives from them.
Cost all_to_all_cost(int ranks, int64_t sent, int64_t received, DType dtype);
Cost send_cost(int64_t count, DType dtype);

// The elements [begin, end) of an all_reduce of `count` elements that rank `rank` sums for all ranks.
struct Slice {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
Slice all_reduce_slice(int ranks, int rank, int64_t count);

}  // namespace zeno::comm
