#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "zeno/base/math.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/vector.h"
#include "zeno/kernels/embedding.h"

// Positions are sorted by id (a stable sort: equal ids stay in the order of their positions), then the rows
// of one id are added in that order to what dtable holds, in fp32 and rounded once. No atomics.
namespace zeno::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kPositions = 32;  // sorted positions per block: as many as a warp has lanes
constexpr int kBatch = 16;      // rows of a long run that are on their way at once

struct BackwardArgs {
  const int32_t *ids, *order;  // sorted ids and the position each came from
  int rows;
  int64_t dy_stride, dtable_stride, dtable_rows;
  int64_t width;
  uint32_t slices;  // blocks along a row
};

// sum += N columns of rows k .. k + kRows of a run; lane l of the warp holds the position of row l.
template <int kRows, class T, int N>
__device__ inline void add_rows(const T* dy, int64_t stride, int32_t position, int k, bool inside,
                                float (&sum)[N]) {
  Pack<T, N> rows[kRows];
#pragma unroll
  for (int j = 0; j < kRows; ++j) rows[j] = load_once<N>(dy + __shfl_sync(~0u, position, k + j) * stride);
  __syncwarp();
  // In a branch of its own: the compiler would space the loads out between the sums otherwise.
  if (!inside) return;
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    float v[N];
    unpack(rows[j], v);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += v[i];
  }
}

// sum += rows begin .. end of those whose positions the lanes hold.
template <class T, int N>
__device__ inline void add_span(const T* dy, int64_t stride, int32_t position, int begin, int end,
                                bool inside, float (&sum)[N]) {
  int k = begin;
  for (; k + kBatch <= end; k += kBatch) add_rows<kBatch>(dy, stride, position, k, inside, sum);
  for (; k + 4 <= end; k += 4) add_rows<4>(dy, stride, position, k, inside, sum);
  for (; k < end; ++k) add_rows<1>(dy, stride, position, k, inside, sum);
}

// A block takes kThreads · N columns of the runs of equal ids that begin at one of its sorted positions. Each
// lane of a warp reads one of them, so that nothing but rows has to be waited for from one run to the next;
// only the last run can go on beyond them.
template <class T, class G, int N>
__global__ void __launch_bounds__(kThreads) add_runs_kernel(const T* dy, G* dtable, BackwardArgs a) {
  const uint32_t slice = blockIdx.x % a.slices;
  const int first = int(blockIdx.x / a.slices) * kPositions;
  const int64_t column = (int64_t(slice) * kThreads + threadIdx.x) * N;
  // Threads past the last column read the first one and write nothing.
  const bool inside = column < a.width;
  dy += inside ? column : 0;
  dtable += inside ? column : 0;
  const int lane = int(threadIdx.x) % 32, at = first + lane;
  const bool exists = at < a.rows;
  const int32_t id = exists ? a.ids[at] : 0, position = exists ? a.order[at] : 0;
  expect(id >= 0 && id < a.dtable_rows);
  const bool begins = exists && (at == 0 || id != a.ids[at - 1]);
  const int here = min(a.rows - first, kPositions);
  for (uint32_t left = __ballot_sync(~0u, begins); left != 0;) {
    const int begin = __ffs(int(left)) - 1;
    left &= left - 1;
    const int end = left != 0 ? __ffs(int(left)) - 1 : here;
    const int32_t run = __shfl_sync(~0u, id, begin);
    G* out = dtable + run * a.dtable_stride;
    const Pack<G, N> before = load<N>(out);
    float sum[N];
    unpack(before, sum);
    add_span(dy, a.dy_stride, position, begin, end, inside, sum);
    int count = left == 0 ? 32 : 0;
    for (int next = first + kPositions; count == 32; next += 32) {
      const bool mine = next + lane < a.rows && a.ids[next + lane] == run;
      const int32_t follower = mine ? a.order[next + lane] : 0;
      count = __popc(__ballot_sync(~0u, mine));
      add_span(dy, a.dy_stride, follower, 0, count, inside, sum);
    }
    if (inside) store<N>(out, pack<G>(sum));
  }
}

__global__ void __launch_bounds__(256) count_up_kernel(int32_t* values, int count) {
  const int i = int(blockIdx.x * 256 + threadIdx.x);
  if (i < count) values[i] = i;
}

// Sorted ids and their positions, in the scratch of the stream.
struct Order {
  const int32_t *ids, *positions;
};

Order sort_ids(StreamRef stream, const Tensor& ids, int rows, int64_t table_rows) {
  std::span<std::byte> room = scratch(stream);
  const auto take = [&](size_t bytes) {
    bytes = round_up<size_t>(bytes, 256);
    ensure(room.size() >= bytes, "[embedding] scratch: {} rows need {} bytes more than there are", rows,
           bytes - room.size());
    std::byte* at = room.data();
    room = room.subspan(bytes);
    return at;
  };
  const auto ints = [&] { return reinterpret_cast<int32_t*>(take(size_t(rows) * sizeof(int32_t))); };
  int32_t *counted = ints(), *sorted = ints(), *positions = ints();
  count_up_kernel<<<div_ceil(uint32_t(rows), 256u), 256, 0, native(stream)>>>(counted, rows);
  check_launch("count_up");
  const uint32_t* keys = reinterpret_cast<const uint32_t*>(ids.as<int32_t>());
  const int bits = std::bit_width(uint64_t(std::max<int64_t>(table_rows - 1, 1)));
  size_t bytes = 0;
  const auto sort = [&](void* temporary) {
    check(cub::DeviceRadixSort::SortPairs(temporary, bytes, keys, reinterpret_cast<uint32_t*>(sorted),
                                          counted, positions, rows, 0, bits, native(stream)),
          "cub sort");
  };
  sort(nullptr);
  sort(take(bytes));
  return {sorted, positions};
}

template <class T, class G, int N>
void launch(cudaStream_t stream, const Tensor& dy, const Tensor& dtable, const Order& order) {
  const BackwardArgs a{.ids = order.ids,
                       .order = order.positions,
                       .rows = int(dy.rows),
                       .dy_stride = dy.stride,
                       .dtable_stride = dtable.stride,
                       .dtable_rows = dtable.rows,
                       .width = dy.cols,
                       .slices = uint32_t(div_ceil<int64_t>(dy.cols, kThreads * N))};
  const int64_t blocks = a.slices * div_ceil<int64_t>(dy.rows, kPositions);
  ensure(blocks < int64_t(1) << 31, "[embedding] dy: got [{}, {}], expected less", dy.rows, dy.cols);
  add_runs_kernel<T, G, N><<<uint32_t(blocks), kThreads, 0, stream>>>(pointer<T>(dy), pointer<G>(dtable), a);
  check_launch("embedding_backward");
}

}  // namespace

void embedding_backward(StreamRef stream, Tensor ids, Tensor dy, Tensor dtable) {
  ensure(ids.count() == dy.rows, "[embedding] ids: got {}, expected {}", ids.count(), dy.rows);
  ensure(dtable.cols == dy.cols, "[embedding] dtable: got {} columns, expected {}", dtable.cols, dy.cols);
  ensure(dy.rows < int64_t(1) << 31, "[embedding] dy: got {} rows, expected less than 2^31", dy.rows);
  if (dy.count() == 0) return;
  const Order order = sort_ids(stream, ids, int(dy.rows), dtable.rows);
  // Short vectors, so that many rows of a run fit into registers.
  constexpr int kColumns = 4;
  const bool vector = dy.cols % kColumns == 0 && rows_aligned(dy) && rows_aligned(dtable);
  dispatch_device(dy.dtype, [&]<class T>() {
    dispatch_device(dtable.dtype, [&]<class G>() {
      if (vector) return launch<T, G, kColumns>(native(stream), dy, dtable, order);
      launch<T, G, 1>(native(stream), dy, dtable, order);
    });
  });
}

}  // namespace zeno::cuda
