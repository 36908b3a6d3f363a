#include "zeno/kernels/attention_decode.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "zeno/kernels/cpu/kernel_scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/attention_decode.cpp"
#include <hwy/foreach_target.h>

#include "zeno/kernels/cpu/gemm_rows.h"
#include "zeno/kernels/cpu/simd_exp.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

using FloatVec = hn::Vec<FloatTag>;
inline constexpr int64_t kLanes = hn::MaxLanes(FloatTag());
inline constexpr int64_t kMaxHeadDim = 256;
// The softmax is rescaled after as many keys as in attention_forward: same sums, same bits.
inline constexpr int64_t kKeyTile = 128;
static_assert(kKeyTile % kCacheTile == 0);
// Queries (of the heads that share a key/value head) that go through the keys together, kTogether at a time.
inline constexpr int64_t kLines = 16;
inline constexpr int kTogether = 4;

// One query on its way through the keys.
struct QueryLine {
  int64_t row, head;    // of qkv and out
  int64_t first, last;  // keys it sees
  float* query;         // [D]
  float* sum;           // [D]: Σ p·v, not yet divided
  float* scores;        // [kKeyTile]: then probabilities
  float max, mass;      // of the scaled scores so far; Σ p so far
};

struct DecodeScratch {
  QueryLine lines[kLines];
  float *keys, *values;  // one tile of softmax in fp32

  DecodeScratch(std::byte* memory, int64_t d) {
    float* at = reinterpret_cast<float*>(memory);
    const auto take = [&](int64_t floats) {
      float* piece = at;
      at += round_up<int64_t>(floats, 16);
      return piece;
    };
    keys = take(kKeyTile * d);
    values = take(kKeyTile * d + kLanes);  // a vector may reach past the last row
    for (QueryLine& line : lines) {
      line.query = take(d);
      line.sum = take(d);
      line.scores = take(kKeyTile);
    }
  }
};
static_assert((2 * kKeyTile * kMaxHeadDim + 16 + kLines * (2 * kMaxHeadDim + kKeyTile)) * 4 <= kScratchBytes);

// Where one sequence's tiles of a key/value head lie.
struct HeadTiles {
  const AttentionDecode& op;
  int64_t first;  // tile

  HeadTiles(const AttentionDecode& o, int64_t b, int64_t g)
      : op(o), first((o.slots.as<int32_t>()[b] * o.shape.kv_heads + g) * cache_tiles(o.capacity)) {}
  template <class T>
  T* keys(int64_t tile) const {
    return op.cache.keys.row<T>(first + tile);
  }
  template <class T>
  T* values(int64_t tile) const {
    return op.cache.values.row<T>(first + tile);
  }
};

// Puts the keys and values of one new token into the cache.
void keep_token(const AttentionDecode& op, int64_t row) {
  const AttentionShape& s = op.shape;
  const int64_t position = op.positions.as<int32_t>()[row], d = s.head_dim;
  dispatch_float(op.qkv.dtype, [&]<class T>() {
    const T* from = op.qkv.row<T>(row) + s.heads * d;
    for (int64_t g = 0; g < s.kv_heads; ++g, from += d) {
      const HeadTiles tiles(op, row / s.seq, g);
      T* keys = tiles.keys<T>(position / kCacheTile) + position % kCacheTile;
      for (int64_t c = 0; c < d; ++c) keys[c * kCacheTile] = from[c];
      std::copy_n(from + s.kv_heads * d, d,
                  tiles.values<T>(position / kCacheTile) + position % kCacheTile * d);
    }
  });
}

// The keys and values [k0, k0 + count) of a head in fp32: keys by cache tile, [D][kCacheTile] each.
void load_tile(const HeadTiles& tiles, int64_t k0, int64_t count, const DecodeScratch& scratch, int64_t d) {
  const FloatTag tag;
  dispatch_float(tiles.op.qkv.dtype, [&]<class T>() {
    const auto widen_to = [&](float* to, const T* from, int64_t n) HWY_ATTR {
      for_lanes(tag, n, [&](int64_t i, auto lanes) HWY_ATTR {
        store(tag, load(tag, from + i, lanes), to + i, lanes);
      });
    };
    for (int64_t k = 0; k < count; k += kCacheTile) {
      const int64_t tile = (k0 + k) / kCacheTile, some = std::min(kCacheTile, count - k);
      for (int64_t c = 0; c < d; ++c) {
        widen_to(scratch.keys + k * d + c * kCacheTile, tiles.keys<T>(tile) + c * kCacheTile,
                 round_up(some, kLanes));
      }
      widen_to(scratch.values + k * d, tiles.values<T>(tile), some * d);
    }
  });
}

// scores[at …] = query · key for V vectors of keys: one chain of multiply-adds in ascending c each.
template <int L, int V>
HWY_INLINE void score_vectors(QueryLine* const* lines, const float* keys, int64_t at, int64_t d) {
  const FloatTag tag;
  FloatVec acc[L][V];
  for (int l = 0; l < L; ++l) {
    for (int v = 0; v < V; ++v) acc[l][v] = hn::Zero(tag);
  }
  for (int64_t c = 0; c < d; ++c) {
    HWY_UNROLL(4)
    for (int v = 0; v < V; ++v) {
      const FloatVec key = hn::LoadU(tag, keys + c * kCacheTile + v * kLanes);
      HWY_UNROLL(4)
      for (int l = 0; l < L; ++l) acc[l][v] = hn::MulAdd(key, hn::Set(tag, lines[l]->query[c]), acc[l][v]);
    }
  }
  for (int l = 0; l < L; ++l) {
    for (int v = 0; v < V; ++v) hn::StoreU(acc[l][v], tag, lines[l]->scores + at + v * kLanes);
  }
}

template <int L>
void score_tile(QueryLine* const* lines, const float* keys, int64_t count, int64_t d) {
  constexpr int kWide = 2;
  static_assert(kCacheTile % (kWide * kLanes) == 0);
  for (int64_t k = 0; k < count; k += kWide * kLanes)
    score_vectors<L, kWide>(lines, keys + k / kCacheTile * kCacheTile * d + k % kCacheTile, k, d);
}

// Scores of keys [k0, k0 + count) to probabilities relative to the new maximum; what was summed under the
// old one shrinks.
void soften(QueryLine& line, int64_t k0, int64_t count, float scale, int64_t d) {
  const FloatTag tag;
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  if (k0 < line.first || k0 + count - 1 > line.last) {
    for (int64_t k = 0; k < count; ++k) {
      if (k0 + k < line.first || k0 + k > line.last) line.scores[k] = kNothing;
    }
  }
  std::fill(line.scores + count, line.scores + round_up(count, kLanes), kNothing);
  auto top = hn::Set(tag, kNothing);
  for (int64_t k = 0; k < count; k += kLanes) top = hn::Max(top, hn::LoadU(tag, line.scores + k));
  const float best = std::max(line.max, hn::GetLane(hn::MaxOfLanes(tag, top)) * scale);
  const auto base = hn::Set(tag, best == kNothing ? 0.0f : best), factor = hn::Set(tag, scale);
  for (int64_t k = 0; k < count; k += kLanes) {
    const auto p = exp_lanes(tag, hn::MulSub(hn::LoadU(tag, line.scores + k), factor, base));
    hn::StoreU(p, tag, line.scores + k);
  }
  const auto shrink = exp_lanes(tag, hn::Sub(hn::Set(tag, line.max), base));
  float mass = 0;
  for (int64_t k = 0; k < count; ++k) mass += line.scores[k];
  line.max = best;
  line.mass = hn::GetLane(hn::MulAdd(hn::Set(tag, line.mass), shrink, hn::Set(tag, mass)));
  for (int64_t c = 0; c < d; c += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(tag, line.sum + c), shrink), tag, line.sum + c);
}

// sum += Σ_k p[k] · values[k], in V vectors of columns from c on.
template <int L, int V>
HWY_INLINE void add_columns(QueryLine* const* lines, const float* values, int64_t count, int64_t d,
                            int64_t c) {
  const FloatTag tag;
  FloatVec acc[L][V];
  for (int l = 0; l < L; ++l) {
    for (int v = 0; v < V; ++v) acc[l][v] = hn::Zero(tag);
  }
  for (int64_t k = 0; k < count; ++k) {
    HWY_UNROLL(4)
    for (int v = 0; v < V; ++v) {
      const FloatVec value = hn::LoadU(tag, values + k * d + c + v * kLanes);
      HWY_UNROLL(4)
      for (int l = 0; l < L; ++l) acc[l][v] = hn::MulAdd(value, hn::Set(tag, lines[l]->scores[k]), acc[l][v]);
    }
  }
  for (int l = 0; l < L; ++l) {
    for (int v = 0; v < V; ++v) {
      float* sum = lines[l]->sum + c + v * kLanes;
      hn::StoreU(hn::Add(hn::LoadU(tag, sum), acc[l][v]), tag, sum);
    }
  }
}

template <int L>
void attend(QueryLine* const* lines, const DecodeScratch& scratch, const AttentionShape& shape, int64_t k0,
            int64_t count) {
  const int64_t d = shape.head_dim;
  score_tile<L>(lines, scratch.keys, count, d);
  for (int l = 0; l < L; ++l) soften(*lines[l], k0, count, shape.scale, d);
  int64_t c = 0;
  for (; c + 4 * kLanes <= d; c += 4 * kLanes) add_columns<L, 4>(lines, scratch.values, count, d, c);
  for (; c < d; c += kLanes) add_columns<L, 1>(lines, scratch.values, count, d, c);
}

void start_line(const AttentionDecode& op, int64_t row, int64_t head, QueryLine& line) {
  const int64_t d = op.shape.head_dim, position = op.positions.as<int32_t>()[row];
  line.row = row;
  line.head = head;
  line.last = position;
  line.first = op.shape.window > 0 ? std::max<int64_t>(0, position - op.shape.window + 1) : 0;
  std::fill_n(line.query, d, 0.0f);
  dispatch_float(op.qkv.dtype, [&]<class T>() { add_row(op.qkv.row<T>(row) + head * d, d, line.query); });
  std::fill_n(line.sum, round_up(d, kLanes), 0.0f);
  line.max = -std::numeric_limits<float>::infinity();
  line.mass = 0;
}

void finish_line(const AttentionDecode& op, QueryLine& line) {
  const FloatTag tag;
  const int64_t d = op.shape.head_dim;
  const auto mass = hn::Set(tag, line.mass);
  for (int64_t c = 0; c < d; c += kLanes)
    hn::StoreU(hn::Div(hn::LoadU(tag, line.sum + c), mass), tag, line.sum + c);
  dispatch_float(op.out.dtype,
                 [&]<class T>() { write_row(line.sum, d, op.out.row<T>(line.row) + line.head * d); });
}

// Up to kLines queries: `heads` heads of one key/value head, `rows` tokens of one sequence.
void decode_unit(const AttentionDecode& op, int64_t row, int64_t rows, int64_t head, int64_t heads,
                 std::byte* memory) {
  const AttentionShape& shape = op.shape;
  DecodeScratch scratch(memory, shape.head_dim);
  int64_t used = 0, low = std::numeric_limits<int64_t>::max(), end = 0;
  for (int64_t r = row; r < row + rows; ++r) {
    for (int64_t h = head; h < head + heads; ++h) {
      QueryLine& line = scratch.lines[used++];
      start_line(op, r, h, line);
      low = std::min(low, line.first);
      end = std::max(end, line.last + 1);
    }
  }
  const HeadTiles tiles(op, row / shape.seq, head / (shape.heads / shape.kv_heads));
  for (int64_t k0 = low / kKeyTile * kKeyTile; k0 < end; k0 += kKeyTile) {
    const int64_t count = std::min(kKeyTile, end - k0);
    load_tile(tiles, k0, count, scratch, shape.head_dim);
    QueryLine* seeing[kLines];
    int64_t n = 0;
    for (int64_t i = 0; i < used; ++i) {
      QueryLine& line = scratch.lines[i];
      if (line.last >= k0 && line.first < k0 + count) seeing[n++] = &line;
    }
    int64_t i = 0;
    for (; i + kTogether <= n; i += kTogether) attend<kTogether>(seeing + i, scratch, shape, k0, count);
    for (; i < n; ++i) attend<1>(seeing + i, scratch, shape, k0, count);
  }
  for (int64_t i = 0; i < used; ++i) finish_line(op, scratch.lines[i]);
}

void run_attention_decode(Workers& workers, const AttentionDecode& op) {
  const AttentionShape& shape = op.shape;
  workers.for_ranges(op.qkv.rows, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) keep_token(op, row);
  });
  const int64_t group = shape.heads / shape.kv_heads, heads = std::min(group, kLines);
  const int64_t strips = div_ceil(group, heads), rows = kLines / heads;
  const int64_t blocks = div_ceil(shape.seq, rows);
  workers.for_each(shape.batch * shape.kv_heads * strips * blocks, [&](int64_t index, int thread) {
    const int64_t block = index % blocks, strip = index / blocks % strips, pair = index / blocks / strips;
    const int64_t first = pair % shape.kv_heads * group + strip * heads;
    const int64_t row = pair / shape.kv_heads * shape.seq + block * rows;
    decode_unit(op, row, std::min(rows, shape.seq - block * rows), first,
                std::min(heads, group - strip * heads), workers.scratch(thread));
  });
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::cpu {
HWY_EXPORT(run_attention_decode);

void attention_decode(StreamRef stream, const AttentionDecode& op) {
  check_attention_decode(op);
  stream.launch([op](Workers& workers) {
    check_scratch(workers, "attention_decode");
    const int64_t sequences = op.cache.keys.rows / op.shape.kv_heads / cache_tiles(op.capacity);
    for (int64_t row = 0; row < op.qkv.rows; ++row) {
      const int32_t position = op.positions.as<int32_t>()[row],
                    slot = op.slots.as<int32_t>()[row / op.shape.seq];
      ensure(position >= 0 && position < op.capacity && slot >= 0 && slot < sequences,
             "[attention_decode] row {}: got position {} of sequence {}, expected below {} and {}", row,
             position, slot, op.capacity, sequences);
    }
    HWY_DYNAMIC_DISPATCH(run_attention_decode)(workers, op);
  });
}

}  // namespace zeno::cpu
#endif
