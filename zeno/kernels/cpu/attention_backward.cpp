#include <algorithm>

#include "zeno/base/math.h"
#include "zeno/kernels/attention.h"
#include "zeno/kernels/cpu/attention_view.h"
#include "zeno/kernels/cpu/kernel_scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>

#include "zeno/kernels/cpu/attention_tile.h"
#include "zeno/kernels/cpu/simd_exp.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

inline constexpr int64_t kKeyPanels = 8;                // panels of kNR keys in a block
inline constexpr int64_t kKeyBlock = kKeyPanels * kNR;  // keys packed at a time
inline constexpr int64_t kQueryPanels = 2;              // panels of kNR queries in a tile
inline constexpr int64_t kQueryTile = kQueryPanels * kNR;

// Per thread. Gradients are summed transposed, [P][kNR] per panel of tokens, P the padded head size: it tiles
// without rest.
struct BackwardScratch {
  float *key_rows, *value_rows;   // [panel][D][kNR]: S = Q·Kᵀ, dP = dO·Vᵀ
  float* key_cols;                // [P/kMR][key][kMR]: dQ = dS·K
  float *dkey, *dvalue;           // [panel][P][kNR]
  float *query_rows, *dout_rows;  // [query/kMR][D][kMR]
  float *query_cols, *dout_cols;  // [P/kMR][query][kMR]: dK = dSᵀ·Q, dV = Pᵀ·dO
  float *scores, *dscores;        // [kQueryTile][kNR]: S then P, dP then dS
  float* dscores_t;               // [query panel][key][kNR]
  float* buffer;                  // [kNR][P]

  ScratchCarver carve;
  BackwardScratch(std::byte* memory, int64_t padded) : carve(reinterpret_cast<float*>(memory)) {
    for (float** block : {&key_rows, &value_rows, &key_cols, &dkey, &dvalue})
      *block = carve.take(kKeyBlock * padded);
    for (float** tile : {&query_rows, &dout_rows, &query_cols, &dout_cols})
      *tile = carve.take(kQueryTile * padded);
    scores = carve.take(kQueryTile * kNR);
    dscores = carve.take(kQueryTile * kNR);
    dscores_t = carve.take(kQueryTile * kKeyBlock);
    buffer = carve.take(kNR * padded);
  }
};
static_assert((5 * kKeyBlock * kMaxHeadDim + 4 * kQueryTile * kMaxHeadDim + 2 * kQueryTile * kNR +
               kQueryTile * kKeyBlock + kNR * kMaxHeadDim + 13 * 2 * kPanelSlack) *
                  4 <=
              kScratchBytes);

// fp32 sums that outlive a tile, in the workspace: one head of one sequence.
struct HeadSums {
  float* dquery;  // [query panel][P][kNR]
  float* delta;   // [T]: Σ dO·O of each query
};

struct BackwardTile {
  int64_t begin, count;  // queries
  KeyLimits limits;
  const float *lse, *delta;  // of the first query
};

template <class T>
HWY_NOINLINE float dot_row(const T* a, const T* b, int64_t n) {
  const FloatTag d;
  auto sum = hn::Zero(d);
  for_lanes(d, n, [&](int64_t i, auto lanes) HWY_ATTR {
    sum = hn::MulAdd(load(d, a + i, lanes), load(d, b + i, lanes), sum);
  });
  return sum_lanes(d, sum);
}

// P and dS of rows [row, count) of the tile against the kNR keys from k0 on, in place.
void softmax_backward(const BackwardTile& tile, int64_t row, int64_t k0, float scale,
                      const BackwardScratch& scratch) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const auto factor = hn::Set(d, scale);
  for (int64_t r = row; r < tile.count; ++r) {
    const auto lse = hn::Set(d, tile.lse[r]), delta = hn::Set(d, tile.delta[r]);
    const int64_t query = tile.begin + r, first = tile.limits.first[r];
    const bool hidden = first > k0 || query < k0 + kNR - 1;
    for (int64_t v = 0; v < kNR; v += kLanes) {
      float *s = scratch.scores + r * kNR + v, *ds = scratch.dscores + r * kNR + v;
      auto p = exp_lanes(d, hn::MulSub(hn::LoadU(d, s), factor, lse));
      if (hidden) {
        const auto key = hn::Iota(di, int32_t(k0 + v));
        const auto out =
            hn::Or(hn::Gt(key, hn::Set(di, int32_t(query))), hn::Lt(key, hn::Set(di, int32_t(first))));
        p = hn::IfThenZeroElse(hn::RebindMask(d, out), p);
      }
      const auto gradient = hn::Mul(hn::Sub(hn::LoadU(d, ds), delta), factor);
      hn::StoreU(p, d, s);
      hn::StoreU(hn::IfThenZeroElse(hn::Eq(p, hn::Zero(d)), hn::Mul(p, gradient)), d, ds);
    }
  }
}

// All gradients of one key/value head of one sequence and of the query heads that share it.
class BackwardUnit {
 public:
  BackwardUnit(const AttentionView& view, const AttentionBackward& op, int64_t b, int64_t g,
               std::byte* memory)
      : view_(view),
        op_(op),
        b_(b),
        g_(g),
        d_(view.shape.head_dim),
        padded_(padded_head(d_)),
        scratch_(memory, padded_) {}

  void run() {
    const int64_t group = view_.group(), seq = view_.shape.seq;
    for (int64_t h = g_ * group; h < (g_ + 1) * group; ++h) start_head(h);
    for (int64_t k0 = 0; k0 < seq; k0 += kKeyBlock) {
      start_keys(k0);
      for (int64_t h = g_ * group; h < (g_ + 1) * group; ++h) {
        for (int64_t q = k0 / kQueryTile * kQueryTile; q < seq; q += kQueryTile) multiply_queries(h, q);
      }
      finish_keys();
    }
    for (int64_t h = g_ * group; h < (g_ + 1) * group; ++h) finish_head(h);
  }

 private:
  HeadSums sums_of(int64_t h) const {
    const int64_t size = div_ceil<int64_t>(view_.shape.seq, kNR) * kNR;
    float* at =
        reinterpret_cast<float*>(op_.workspace.data) + (b_ * view_.shape.heads + h) * size * (padded_ + 1);
    return {.dquery = at, .delta = at + size * padded_};
  }

  void start_head(int64_t h) {
    const HeadSums sums = sums_of(h);
    const int64_t seq = view_.shape.seq;
    std::fill_n(sums.dquery, div_ceil<int64_t>(seq, kNR) * kNR * padded_, 0.0f);
    const Tensor out = view_.out(op_.out, b_, h), dout = view_.out(op_.dout, b_, h);
    dispatch_float(out.dtype, [&]<class T>() {
      for (int64_t q = 0; q < seq; ++q) sums.delta[q] = dot_row(out.row<T>(q), dout.row<T>(q), d_);
    });
  }

  void finish_head(int64_t h) {
    const HeadSums sums = sums_of(h);
    const int64_t seq = view_.shape.seq;
    for (int64_t q = 0; q < seq; q += kNR) {
      write_columns(sums.dquery + q * padded_, view_.query(op_.dqkv, b_, h), q,
                    std::min<int64_t>(kNR, seq - q), scratch_.buffer);
    }
  }

  void start_keys(int64_t k0) {
    k0_ = k0;
    keys_ = std::min(kKeyBlock, view_.shape.seq - k0);
    const Tensor key = view_.key(op_.qkv, b_, g_);
    pack_rows<kNR>(key, k0, keys_, scratch_.key_rows);
    pack_rows<kNR>(view_.value(op_.qkv, b_, g_), k0, keys_, scratch_.value_rows);
    pack_cols(key, k0, keys_, scratch_.key_cols);
    std::fill_n(scratch_.dkey, kKeyBlock * padded_, 0.0f);
    std::fill_n(scratch_.dvalue, kKeyBlock * padded_, 0.0f);
  }

  void finish_keys() {
    for (int64_t k = 0; k < keys_; k += kNR) {
      const int64_t count = std::min<int64_t>(kNR, keys_ - k);
      write_columns(scratch_.dkey + k * padded_, view_.key(op_.dqkv, b_, g_), k0_ + k, count,
                    scratch_.buffer);
      write_columns(scratch_.dvalue + k * padded_, view_.value(op_.dqkv, b_, g_), k0_ + k, count,
                    scratch_.buffer);
    }
  }

  // One tile of queries against the block of keys.
  void multiply_queries(int64_t h, int64_t begin) {
    BackwardTile tile{.begin = begin, .count = std::min(kQueryTile, view_.shape.seq - begin)};
    tile.limits = KeyLimits(view_, b_, begin, tile.count);
    const int64_t last = std::min(begin + tile.count, k0_ + keys_) - 1;  // last key seen, of this block
    if (last < k0_ || tile.limits.lowest >= k0_ + keys_) return;
    const HeadSums sums = sums_of(h);
    tile.lse = op_.lse.row<float>(b_ * view_.shape.heads + h) + begin;
    tile.delta = sums.delta + begin;
    const Tensor query = view_.query(op_.qkv, b_, h), dout = view_.out(op_.dout, b_, h);
    pack_rows<kMR>(query, begin, tile.count, scratch_.query_rows);
    pack_rows<kMR>(dout, begin, tile.count, scratch_.dout_rows);
    pack_cols(query, begin, tile.count, scratch_.query_cols);
    pack_cols(dout, begin, tile.count, scratch_.dout_cols);
    const int64_t from = std::max<int64_t>(0, tile.limits.lowest - k0_) / kNR * kNR;
    for (int64_t k = from; k0_ + k <= last; k += kNR) multiply_keys(tile, k);
    for (int64_t q = 0; q < tile.count; q += kNR) add_dquery(tile, q, from, last, sums.dquery);
  }

  // The tile against one panel of keys, [k, k + kNR) of the block: adds to dK and dV, leaves dS transposed.
  void multiply_keys(const BackwardTile& tile, int64_t k) {
    const int cols = int(std::min<int64_t>(kNR, keys_ - k));
    const int64_t row =
        std::max<int64_t>(0, k0_ + k - tile.begin) / kMR * kMR;  // earlier queries see none of it
    for (int64_t r = row; r < tile.count; r += kMR) {
      const int rows = int(std::min<int64_t>(kMR, tile.count - r));
      multiply_panels(rows, cols, d_, scratch_.query_rows + r * d_, scratch_.key_rows + k * d_,
                      {.out = scratch_.scores + r * kNR, .ld = kNR});
      multiply_panels(rows, cols, d_, scratch_.dout_rows + r * d_, scratch_.value_rows + k * d_,
                      {.out = scratch_.dscores + r * kNR, .ld = kNR});
    }
    softmax_backward(tile, row, k0_ + k, view_.shape.scale, scratch_);
    const int64_t depth = tile.count - row;
    for (int64_t c = 0; c < d_; c += kMR) {
      add_product(kMR, cols, depth, scratch_.dout_cols + c * tile.count + row * kMR,
                  scratch_.scores + row * kNR, scratch_.dvalue + k * padded_ + c * kNR);
      add_product(kMR, cols, depth, scratch_.query_cols + c * tile.count + row * kMR,
                  scratch_.dscores + row * kNR, scratch_.dkey + k * padded_ + c * kNR);
    }
    std::fill_n(scratch_.dscores, row * kNR, 0.0f);
    for (int64_t q = 0; q < tile.count; q += kNR) {
      pack_across<kNR>(scratch_.dscores + q * kNR, kNR, cols, tile.count - q,
                       scratch_.dscores_t + q * kKeyBlock + k * kNR);
    }
  }

  // dQ of the panel of queries [q, q + kNR) of the tile, over the keys from `from` in the block to key
  // `last`.
  void add_dquery(const BackwardTile& tile, int64_t q, int64_t from, int64_t last, float* dquery) {
    const int cols = int(std::min<int64_t>(kNR, tile.count - q));
    const int64_t depth = std::min(last, tile.begin + q + cols - 1) - (k0_ + from) + 1;
    if (depth <= 0) return;
    for (int64_t c = 0; c < d_; c += kMR) {
      add_product(kMR, cols, depth, scratch_.key_cols + c * keys_ + from * kMR,
                  scratch_.dscores_t + q * kKeyBlock + from * kNR,
                  dquery + (tile.begin + q) * padded_ + c * kNR);
    }
  }

  static void add_product(int rows, int cols, int64_t depth, const float* a, const float* b, float* sum) {
    multiply_panels(rows, cols, depth, a, b, {.out = sum, .ld = kNR, .sums = sum, .ld_sums = kNR});
  }

  const AttentionView& view_;
  const AttentionBackward& op_;
  const int64_t b_, g_, d_, padded_;  // padded_: head size
  BackwardScratch scratch_;
  int64_t k0_ = 0, keys_ = 0;  // the block of keys at hand
};

void run_attention_backward(Workers& workers, const AttentionView& view, const AttentionBackward& op) {
  const int64_t heads = view.shape.kv_heads;
  workers.for_each(view.shape.batch * heads, [&](int64_t index, int thread) {
    BackwardUnit(view, op, index / heads, index % heads, workers.scratch(thread)).run();
  });
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::cpu {
HWY_EXPORT(run_attention_backward);

size_t attention_backward_workspace(const AttentionShape& shape) {
  // dQ and one more float per query; tokens are padded to the panel, at most 64 wide on any CPU.
  const int64_t padded = padded_head(shape.head_dim);
  return size_t(shape.batch * shape.heads * round_up<int64_t>(shape.seq + 63, 16) * (padded + 1)) *
         sizeof(float);
}

void attention_backward(StreamRef stream, const AttentionBackward& op) {
  const AttentionView view =
      attention_view("attention_backward", op.shape, op.qkv, op.doc_start, op.out, op.lse);
  const auto like = [](const Tensor& t, const Tensor& o) {
    return t.dtype == o.dtype && t.rows == o.rows && t.cols == o.cols;
  };
  ensure(like(op.dout, op.out),
         "[attention_backward] dout: got {} [{}, {}], expected the shape of out {} [{}, {}]",
         name_of(op.dout.dtype), op.dout.rows, op.dout.cols, name_of(op.out.dtype), op.out.rows, op.out.cols);
  ensure(like(op.dqkv, op.qkv),
         "[attention_backward] dqkv: got {} [{}, {}], expected the shape of qkv {} [{}, {}]",
         name_of(op.dqkv.dtype), op.dqkv.rows, op.dqkv.cols, name_of(op.qkv.dtype), op.qkv.rows, op.qkv.cols);
  const size_t needed = attention_backward_workspace(op.shape);
  ensure(op.workspace.bytes() >= needed, "[attention_backward] workspace: got {} bytes, expected {}",
         op.workspace.bytes(), needed);
  stream.launch([view, op](Workers& workers) {
    check_scratch(workers, "attention_backward");
    HWY_DYNAMIC_DISPATCH(run_attention_backward)(workers, view, op);
  });
}

}  // namespace zeno::cpu
#endif
