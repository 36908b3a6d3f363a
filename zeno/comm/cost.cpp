#include "zeno/comm/cost.h"

#include <algorithm>

#include "zeno/base/math.h"

namespace zeno::comm {
namespace {

constexpr int64_t kSteps = 2;  // before the data is read and after it

Cost to_each_other(int ranks, int64_t count, DType dtype) {
  return {ranks == 1 ? 0 : kSteps, (ranks - 1) * count * int64_t(size_of(dtype))};
}

}  // namespace

Cost all_gather_cost(int ranks, int64_t count, DType dtype) { return to_each_other(ranks, count, dtype); }
Cost reduce_scatter_cost(int ranks, int64_t count, DType dtype) { return to_each_other(ranks, count, dtype); }
Cost all_to_all_cost(int ranks, int64_t count, DType dtype) { return to_each_other(ranks, count, dtype); }

Cost all_to_all_cost(int ranks, int64_t sent, int64_t received, DType dtype) {
  return {ranks == 1 ? 0 : kSteps, std::max(sent, received) * int64_t(size_of(dtype))};
}

Cost all_reduce_cost(int ranks, int rank, int64_t count, DType dtype) {
  const int64_t mine = all_reduce_slice(ranks, rank, count).size();
  const int64_t elements = (count - mine) + (ranks - 1) * mine;  // reduce-scatter, then all-gather
  return {ranks == 1 ? 0 : kSteps + 1, ranks == 1 ? 0 : elements * int64_t(size_of(dtype))};
}

Cost broadcast_cost(int ranks, bool root, int64_t count, DType dtype) {
  if (ranks == 1) return {};
  return {kSteps, (root ? ranks - 1 : 1) * count * int64_t(size_of(dtype))};
}

Cost send_cost(int64_t count, DType dtype) { return {1, count * int64_t(size_of(dtype))}; }

Slice all_reduce_slice(int ranks, int rank, int64_t count) {
  constexpr int64_t kLine = 32;  // elements: no two ranks write the same cache line
  const int64_t length = round_up(div_ceil(count, int64_t(ranks)), kLine);
  return {std::min(count, rank * length), std::min(count, (rank + 1) * length)};
}

}  // namespace zeno::comm
