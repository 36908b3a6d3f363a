#include <algorithm>
#include <cmath>
#include <limits>

#include "zeno/base/math.h"
#include "zeno/kernels/attention.h"
#include "zeno/kernels/cpu/attention_view.h"
#include "zeno/kernels/cpu/kernel_scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/attention_forward.cpp"
#include <hwy/foreach_target.h>

#include "zeno/kernels/cpu/attention_tile.h"
#include "zeno/kernels/cpu/simd_exp.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

// Keys of one tile; tiles begin at multiples of it, so the order of sums depends on the position alone.
inline constexpr int64_t kKeyTile = 128;
// Query panels (kNR queries of one head) that share one packing of the keys and values.
inline constexpr int64_t kSlots = 8;

// A panel of queries on its way through the keys. Scores are kept transposed, [key][query]: the softmax then
// runs down the lanes, and the probabilities already are the panel that multiplies V.
struct QueryPanel {
  int64_t head, begin, count;  // queries [begin, begin + count) of the sequence
  KeyLimits limits;
  float* query;     // [D][kNR]
  float* sum;       // [padded D][kNR]: Σ p·v, not yet divided
  float max[kNR];   // of the scaled scores so far
  float mass[kNR];  // Σ p so far
};

struct ForwardScratch {
  QueryPanel panels[kSlots];
  float *keys, *values, *scores, *buffer;

  ForwardScratch(std::byte* memory, int64_t d) {
    ScratchCarver carve(reinterpret_cast<float*>(memory));
    keys = carve.take(kKeyTile * d);
    values = carve.take(kKeyTile * padded_head(d));
    scores = carve.take(kKeyTile * kNR);
    buffer = carve.take(kNR * padded_head(d));
    for (QueryPanel& panel : panels) {
      panel.query = carve.take(kNR * d);
      panel.sum = carve.take(kNR * padded_head(d));
    }
  }
};
static_assert((2 * kKeyTile * kMaxHeadDim + kKeyTile * kNR + (2 * kSlots + 1) * kNR * kMaxHeadDim +
               (4 + 2 * kSlots) * 2 * kPanelSlack) *
                  4 <=
              kScratchBytes);

// -inf where the key is after the query or before what it sees. Rows are keys k0...
void mask_scores(const QueryPanel& panel, int64_t k0, int64_t keys, float* scores) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t v = 0; v < kNR; v += kLanes) {
    const auto last = hn::Iota(di, int32_t(panel.begin + v));
    const auto first = hn::LoadU(di, panel.limits.first + v);
    for (int64_t r = 0; r < keys; ++r) {
      const auto key = hn::Set(di, int32_t(k0 + r));
      const auto out = hn::Or(hn::Gt(key, last), hn::Lt(key, first));
      float* s = scores + r * kNR + v;
      hn::StoreU(hn::IfThenElse(hn::RebindMask(d, out), hidden, hn::LoadU(d, s)), d, s);
    }
  }
}

// Scores to probabilities relative to the new maximum; scales what was summed under the old one.
void softmax_scores(QueryPanel& panel, int64_t keys, float scale, int64_t head_dim, float* scores) {
  const FloatTag d;
  const auto factor = hn::Set(d, scale);
  const auto nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t v = 0; v < kNR; v += kLanes) {
    float* s = scores + v;
    auto top = nothing;
    for (int64_t r = 0; r < keys; ++r) top = hn::Max(top, hn::LoadU(d, s + r * kNR));
    const auto old = hn::LoadU(d, panel.max + v);
    const auto best = hn::Max(old, hn::Mul(top, factor));
    // A query that has seen no key yet has no maximum: any finite stand-in gives exp(-inf) = 0.
    const auto base = hn::IfThenElse(hn::Eq(best, nothing), hn::Zero(d), best);
    const auto shrink = exp_lanes(d, hn::Sub(old, base));
    auto mass = hn::Zero(d);
    for (int64_t r = 0; r < keys; ++r) {
      const auto p = exp_lanes(d, hn::MulSub(hn::LoadU(d, s + r * kNR), factor, base));
      mass = hn::Add(mass, p);
      hn::StoreU(p, d, s + r * kNR);
    }
    hn::StoreU(best, d, panel.max + v);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, panel.mass + v), shrink, mass), d, panel.mass + v);
    for (int64_t c = 0; c < head_dim; ++c) {
      float* sum = panel.sum + c * kNR + v;
      hn::StoreU(hn::Mul(hn::LoadU(d, sum), shrink), d, sum);
    }
  }
}

// One panel of queries against the packed keys [k0, k0 + keys).
void attend(const AttentionShape& shape, const ForwardScratch& scratch, QueryPanel& panel, int64_t k0,
            int64_t keys) {
  const int64_t d = shape.head_dim;
  const int64_t count = std::min(keys, panel.begin + panel.count - k0);  // later keys are in the future
  if (count <= 0 || k0 + count <= panel.limits.lowest) return;
  const int cols = int(panel.count);
  for (int64_t r = 0; r < count; r += kMR) {
    const int rows = int(std::min<int64_t>(kMR, count - r));
    multiply_panels(rows, cols, d, scratch.keys + r * d, panel.query,
                    {.out = scratch.scores + r * kNR, .ld = kNR});
  }
  if (k0 + count - 1 > panel.begin || panel.limits.highest > k0)
    mask_scores(panel, k0, count, scratch.scores);
  softmax_scores(panel, count, shape.scale, d, scratch.scores);
  for (int64_t c = 0; c < d; c += kMR) {
    float* sum = panel.sum + c * kNR;
    multiply_panels(kMR, cols, count, scratch.values + c * keys, scratch.scores,
                    {.out = sum, .ld = kNR, .sums = sum, .ld_sums = kNR});
  }
}

void start_panel(const AttentionView& view, const Tensor& qkv, int64_t b, QueryPanel& panel) {
  panel.limits = KeyLimits(view, b, panel.begin, panel.count);
  pack_rows<kNR>(view.query(qkv, b, panel.head), panel.begin, panel.count, panel.query);
  std::fill_n(panel.sum, kNR * padded_head(view.shape.head_dim), 0.0f);
  std::fill_n(panel.max, kNR, -std::numeric_limits<float>::infinity());
  std::fill_n(panel.mass, kNR, 0.0f);
}

void finish_panel(const AttentionView& view, const AttentionForward& op, int64_t b, QueryPanel& panel,
                  float* buffer) {
  const FloatTag d;
  for (int64_t v = 0; v < kNR; v += kLanes) {
    const auto mass = hn::LoadU(d, panel.mass + v);
    for (int64_t c = 0; c < view.shape.head_dim; ++c) {
      float* sum = panel.sum + c * kNR + v;
      hn::StoreU(hn::Div(hn::LoadU(d, sum), mass), d, sum);
    }
  }
  float* lse = op.lse.row<float>(b * view.shape.heads + panel.head) + panel.begin;
  for (int64_t i = 0; i < panel.count; ++i) lse[i] = panel.max[i] + std::log(panel.mass[i]);
  write_columns(panel.sum, view.out(op.out, b, panel.head), panel.begin, panel.count, buffer);
}

// Up to kSlots panels: `heads` heads of one key/value head, the queries [begin, begin + rows) of each.
void forward_unit(const AttentionView& view, const AttentionForward& op, int64_t b, int64_t head,
                  int64_t heads, int64_t begin, int64_t rows, std::byte* memory) {
  const AttentionShape& shape = view.shape;
  ForwardScratch scratch(memory, shape.head_dim);
  int64_t used = 0, end = begin, low = begin;
  for (int64_t h = head; h < head + heads; ++h) {
    for (int64_t q = begin; q < std::min(begin + rows, shape.seq); q += kNR) {
      QueryPanel& panel = scratch.panels[used++];
      panel.head = h;
      panel.begin = q;
      panel.count = std::min<int64_t>(kNR, shape.seq - panel.begin);
      start_panel(view, op.qkv, b, panel);
      end = std::max(end, panel.begin + panel.count);
      low = std::min(low, panel.limits.lowest);
    }
  }
  const Tensor keys = view.key(op.qkv, b, head / view.group());
  const Tensor values = view.value(op.qkv, b, head / view.group());
  for (int64_t k0 = low / kKeyTile * kKeyTile; k0 < end; k0 += kKeyTile) {
    const int64_t count = std::min(kKeyTile, end - k0);
    pack_rows<kMR>(keys, k0, count, scratch.keys);
    pack_cols(values, k0, count, scratch.values);
    for (int64_t i = 0; i < used; ++i) attend(shape, scratch, scratch.panels[i], k0, count);
  }
  for (int64_t i = 0; i < used; ++i) finish_panel(view, op, b, scratch.panels[i], scratch.buffer);
}

void run_attention_forward(Workers& workers, const AttentionView& view, const AttentionForward& op) {
  const AttentionShape& shape = view.shape;
  const int64_t heads = std::min(view.group(), kSlots);
  const int64_t strips = div_ceil(view.group(), heads);  // of the heads that share a key/value head
  const int64_t rows = kSlots / heads * kNR;
  const int64_t blocks = div_ceil(shape.seq, rows);
  workers.for_each(shape.batch * shape.kv_heads * strips * blocks, [&](int64_t index, int thread) {
    const int64_t block = blocks - 1 - index % blocks;  // the long ones first
    const int64_t strip = index / blocks % strips, pair = index / blocks / strips;
    const int64_t first = pair % shape.kv_heads * view.group() + strip * heads;
    const int64_t count = std::min(heads, view.group() - strip * heads);
    forward_unit(view, op, pair / shape.kv_heads, first, count, block * rows, rows, workers.scratch(thread));
  });
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno::cpu {
HWY_EXPORT(run_attention_forward);

void attention_forward(StreamRef stream, const AttentionForward& op) {
  const AttentionView view =
      attention_view("attention_forward", op.shape, op.qkv, op.doc_start, op.out, op.lse);
  stream.launch([view, op](Workers& workers) {
    check_scratch(workers, "attention_forward");
    HWY_DYNAMIC_DISPATCH(run_attention_forward)(workers, view, op);
  });
}

}  // namespace zeno::cpu
#endif
