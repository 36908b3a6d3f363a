// Attention over a cache against attention over the whole sequence: however the tokens arrive, in one piece
// or one by one, the bits are the same.
#include "zeno/kernels/attention_decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/kernels/every_target.h"
#include "tests/kernels/host_tensor.h"

namespace zeno {
namespace {

struct Case {
  int64_t heads, kv_heads, head_dim, window;
};

AttentionShape shape_of(const Case& c, int64_t batch, int64_t seq) {
  return {.batch = batch,
          .seq = seq,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .scale = 1 / std::sqrt(float(c.head_dim)),
          .window = c.window};
}

// What the kernel would do to a few sequences: owns the cache, poisoned, and feeds it tokens.
class Sequences {
 public:
  Sequences(const Case& c, DType dtype, int64_t count, int64_t capacity)
      : case_(c),
        capacity_(capacity),
        keys_(dtype, count * c.kv_heads * cache_tiles(capacity), c.head_dim * kCacheTile),
        values_(dtype, keys_.rows(), keys_.cols()) {
    std::memset(keys_.view().data, 0xff, keys_.view().bytes());
    std::memset(values_.view().data, 0xff, values_.view().bytes());
  }

  // `seq` tokens of each sequence in `slots`, from `positions` on; qkv and out are [slots · seq, …].
  void feed(const std::vector<int32_t>& slots, const std::vector<int32_t>& starts, int64_t seq, Tensor qkv,
            Tensor out, int threads) {
    HostTensor slot(DType::i32, 1, int64_t(slots.size())), position(DType::i32, 1, qkv.rows);
    for (size_t b = 0; b < slots.size(); ++b) {
      slot.set(0, int64_t(b), slots[b]);
      for (int64_t t = 0; t < seq; ++t) position.set(0, int64_t(b) * seq + t, double(starts[b] + t));
    }
    run_on(threads, [&](StreamRef stream) {
      attention_decode(stream, {.shape = shape_of(case_, int64_t(slots.size()), seq),
                                .qkv = qkv,
                                .positions = position.view(),
                                .slots = slot.view(),
                                .cache = {keys_.view(), values_.view()},
                                .capacity = capacity_,
                                .out = out});
    });
  }

 private:
  Case case_;
  int64_t capacity_;
  HostTensor keys_, values_;
};

const Case kCases[] = {{3, 3, 8, 0},    {6, 2, 64, 0},  {4, 1, 24, 7}, {20, 1, 16, 0},
                       {2, 2, 80, 100}, {2, 1, 100, 0}, {1, 1, 7, 0}};

TEST(AttentionDecode, HasTheBitsOfAttentionOverTheWholeSequence) {
  constexpr int64_t kTokens = 150;
  on_every_target([&](int64_t) {
    for (const DType dtype : kFloatTypes) {
      for (const Case& c : kCases) {
        HostTensor qkv(dtype, kTokens, (c.heads + 2 * c.kv_heads) * c.head_dim),
            whole(dtype, kTokens, c.heads * c.head_dim);
        HostTensor pieces(dtype, kTokens, whole.cols()), lse(DType::f32, c.heads, kTokens);
        qkv.random(5);
        run_on(1, [&](StreamRef stream) {
          attention_forward(
              stream,
              {.shape = shape_of(c, 1, kTokens), .qkv = qkv.view(), .out = whole.view(), .lse = lse.view()});
        });
        Sequences sequences(c, dtype, 3, kTokens);
        const int64_t cuts[] = {0, 1, 2, 40, 41, 63, 64, 65, 127, 128, 129, 150};
        for (size_t i = 0; i + 1 < std::size(cuts); ++i) {
          const int64_t begin = cuts[i], seq = cuts[i + 1] - begin;
          sequences.feed({1}, {int32_t(begin)}, seq, qkv.view().slice(begin, seq),
                         pieces.view().slice(begin, seq), i % 2 == 0 ? 1 : 3);
        }
        ASSERT_EQ(pieces.bytes(), whole.bytes())
            << name_of(dtype) << " " << c.heads << "/" << c.kv_heads << " heads of " << c.head_dim;
      }
    }
  });
}

TEST(AttentionDecode, KeepsSequencesApart) {
  // Three sequences of different lengths take one step together; each must see its own past only.
  const Case c{4, 2, 16, 0};
  const int64_t lengths[] = {5, 70, 1}, width = (c.heads + 2 * c.kv_heads) * c.head_dim,
                out = c.heads * c.head_dim;
  Sequences together(c, DType::f32, 4, 80);
  HostTensor step(DType::f32, 3, width), joint(DType::f32, 3, out);
  step.random(9);
  std::vector<HostTensor> alone;
  const int32_t slots[] = {2, 0, 3};
  for (int64_t b = 0; b < 3; ++b) {
    HostTensor past(DType::f32, lengths[b], width), ignored(DType::f32, lengths[b], out);
    past.random(uint64_t(20 + b));
    together.feed({slots[b]}, {0}, lengths[b], past.view(), ignored.view(), 2);
    Sequences single(c, DType::f32, 1, 80);
    single.feed({0}, {0}, lengths[b], past.view(), ignored.view(), 1);
    alone.emplace_back(DType::f32, 1, out);
    single.feed({0}, {int32_t(lengths[b])}, 1, step.view().slice(b, 1), alone.back().view(), 1);
  }
  together.feed({2, 0, 3}, {5, 70, 1}, 1, step.view(), joint.view(), 2);
  for (int64_t b = 0; b < 3; ++b) {
    EXPECT_EQ(std::memcmp(joint.view().row<float>(b), alone[size_t(b)].view().data, size_t(out) * 4), 0) << b;
  }
}

TEST(AttentionDecode, RefusesTokensBeyondTheCache) {
  const Case c{2, 2, 8, 0};
  Sequences sequences(c, DType::f32, 1, 16);
  HostTensor qkv(DType::f32, 1, 48), out(DType::f32, 1, 16);
  qkv.random(1);
  const auto feed = [&](int32_t slot, int32_t start) {
    sequences.feed({slot}, {start}, 1, qkv.view(), out.view(), 1);
  };
  feed(0, 15);
  EXPECT_THROW(feed(0, 16), Error);
  EXPECT_THROW(feed(1, 0), Error);
  EXPECT_THROW(feed(0, -1), Error);
}

}  // namespace
}  // namespace zeno
