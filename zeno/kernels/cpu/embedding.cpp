#include "zeno/kernels/embedding.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "zeno/base/math.h"
#include "zeno/kernels/cpu/simd_lanes.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

template <class W, class T>
HWY_INLINE void embed_rows(const EmbeddingForward& op, int64_t begin, int64_t end) {
  const FloatTag d;
  const int32_t* tokens = op.tokens.as<int32_t>();
  const int32_t* positions = op.position_table ? op.positions.as<int32_t>() : nullptr;
  for (int64_t r = begin; r < end; ++r) {
    ensure(tokens[r] >= 0 && tokens[r] < op.table.rows, "[embedding] token of row {}: got {}, expected 0..{}",
           r, tokens[r], op.table.rows - 1);
    const W* row = op.table.row<W>(tokens[r]);
    const W* place = nullptr;
    if (positions) {
      ensure(positions[r] >= 0 && positions[r] < op.position_table.rows,
             "[embedding] position of row {}: got {}, expected 0..{}", r, positions[r],
             op.position_table.rows - 1);
      place = op.position_table.row<W>(positions[r]);
    }
    T* y = op.y.row<T>(r);
    for_lanes(d, op.y.cols, [&](int64_t i, auto lanes) HWY_ATTR {
      auto v = load(d, row + i, lanes);
      if (place) v = hn::Add(v, load(d, place + i, lanes));
      store(d, v, y + i, lanes);
    });
  }
}

void embedding_forward_rows(const EmbeddingForward& op, int64_t begin, int64_t end) {
  dispatch_float(op.table.dtype, [&]<class W>() HWY_ATTR {
    dispatch_float(op.y.dtype, [&]<class T>() HWY_ATTR { embed_rows<W, T>(op, begin, end); });
  });
}

// Columns [begin, end) of dtable for a list of (id << 32 | row) in order: the rows of an id are summed in
// fp32 one vector at a time and rounded once.
template <class T, class G>
HWY_INLINE void add_columns(const Tensor& dy, const Tensor& dtable, const uint64_t* keys, int64_t count,
                            int64_t begin, int64_t end) {
  const FloatTag d;
  for (int64_t first = 0, last; first < count; first = last) {
    const uint64_t id = keys[first] >> 32;
    for (last = first + 1; last < count && keys[last] >> 32 == id;) ++last;
    G* out = dtable.row<G>(int64_t(id)) + begin;
    for_lanes(d, end - begin, [&](int64_t i, auto lanes) HWY_ATTR {
      auto sum = load(d, out + i, lanes);
      for (int64_t k = first; k < last; ++k) {
        sum = hn::Add(sum, load(d, dy.row<T>(int64_t(uint32_t(keys[k]))) + begin + i, lanes));
      }
      store(d, sum, out + i, lanes);
    });
  }
}

void embedding_backward_columns(const Tensor& dy, const Tensor& dtable, const uint64_t* keys, int64_t count,
                                int64_t begin, int64_t end) {
  dispatch_float(dy.dtype, [&]<class T>() HWY_ATTR {
    dispatch_float(dtable.dtype,
                   [&]<class G>() HWY_ATTR { add_columns<T, G>(dy, dtable, keys, count, begin, end); });
  });
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::cpu {

HWY_EXPORT(embedding_forward_rows);
HWY_EXPORT(embedding_backward_columns);

void embedding_forward(StreamRef stream, const EmbeddingForward& op) {
  const int64_t rows = op.y.rows, cols = op.y.cols;
  ensure(op.tokens.count() == rows, "[embedding] tokens: got {}, expected {}", op.tokens.count(), rows);
  ensure(op.table.cols == cols, "[embedding] table: got {} columns, expected {}", op.table.cols, cols);
  if (op.position_table) {
    ensure(op.positions.count() == rows, "[embedding] positions: got {}, expected {}", op.positions.count(),
           rows);
    ensure(op.position_table.cols == cols && op.position_table.dtype == op.table.dtype,
           "[embedding] position_table: got {} columns of {}, expected {} of {}", op.position_table.cols,
           name_of(op.position_table.dtype), cols, name_of(op.table.dtype));
  }
  stream.launch([=](Workers& workers) {
    const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cols));
    workers.for_ranges(rows, grain, [&](int64_t begin, int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(embedding_forward_rows)(op, begin, end);
    });
  });
}

void embedding_backward(StreamRef stream, Tensor ids, Tensor dy, Tensor dtable) {
  ensure(ids.count() == dy.rows, "[embedding] ids: got {}, expected {}", ids.count(), dy.rows);
  ensure(dtable.cols == dy.cols, "[embedding] dtable: got {} columns, expected {}", dtable.cols, dy.cols);
  stream.launch([=](Workers& workers) {
    constexpr int64_t kChunk = 8192;  // rows ordered at a time: 64 KiB of the first thread's scratch
    ensure(workers.scratch_bytes() >= kChunk * sizeof(uint64_t),
           "[embedding] scratch: got {} bytes, expected {}", workers.scratch_bytes(),
           kChunk * sizeof(uint64_t));
    uint64_t* keys = reinterpret_cast<uint64_t*>(workers.scratch(0));
    const int32_t* id = ids.as<int32_t>();
    const int64_t width = std::clamp<int64_t>(
        round_up(div_ceil<int64_t>(dy.cols, 2 * workers.threads()), int64_t(32)), 32, 512);
    for (int64_t base = 0; base < dy.rows; base += kChunk) {
      const int64_t count = std::min(kChunk, dy.rows - base);
      for (int64_t i = 0; i < count; ++i) {
        ensure(id[base + i] >= 0 && id[base + i] < dtable.rows,
               "[embedding] id of row {}: got {}, expected 0..{}", base + i, id[base + i], dtable.rows - 1);
        keys[i] = uint64_t(id[base + i]) << 32 | uint64_t(base + i);
      }
      std::sort(keys, keys + count);
      workers.for_ranges(dy.cols, width, [&](int64_t begin, int64_t end, int) {
        HWY_DYNAMIC_DISPATCH(embedding_backward_columns)(dy, dtable, keys, count, begin, end);
      });
    }
  });
}

}  // namespace zeno::cpu
#endif  // HWY_ONCE
