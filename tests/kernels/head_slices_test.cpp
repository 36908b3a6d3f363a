#include "zeno/kernels/head_slices.h"

#include "tests/kernels/host_tensor.h"

namespace zeno {
namespace {

struct Case {
  int64_t batch, seq, ranks, heads, kv_heads, head_dim;
};
// As many key heads as query heads, fewer, none; fewer than ranks; an odd number of everything.
constexpr Case kCases[] = {{1, 4, 2, 4, 4, 8}, {2, 3, 2, 4, 2, 6}, {3, 5, 4, 8, 2, 4}, {2, 2, 3, 3, 0, 5},
                           {1, 7, 3, 9, 3, 2}, {2, 1, 8, 8, 1, 3}, {1, 3, 1, 2, 1, 4}};

HeadSlices shape_of(const Case& c) {
  return {.batch = c.batch,
          .seq = c.seq,
          .ranks = c.ranks,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .tokens = {},
          .slices = {}};
}

// Where a rank finds its heads: those of its queries, and the keys and values that these use.
TEST(HeadSlices, EveryRankGetsItsHeadsOfEveryToken) {
  for (DType dtype : kFloatTypes) {
    for (const Case& c : kCases) {
      HeadSlices op = shape_of(c);
      HostTensor tokens(dtype, c.batch * c.seq, op.token_heads() * c.head_dim);
      HostTensor slices(dtype, tokens.rows() * c.ranks, op.slice_heads() * c.head_dim);
      tokens.random(1);
      op.tokens = tokens.view();
      op.slices = slices.view();
      run_on(2, [&](StreamRef stream) { pack_heads(stream, op); });
      for (int64_t b = 0; b < c.batch; ++b) {
        for (int64_t rank = 0; rank < c.ranks; ++rank) {
          for (int64_t t = 0; t < c.seq; ++t) {
            const int64_t row = (b * c.ranks + rank) * c.seq + t, token = b * c.seq + t;
            const auto expect_head = [&](int64_t in_slice, int64_t in_token) {
              for (int64_t i = 0; i < c.head_dim; ++i)
                ASSERT_EQ(slices.get(row, in_slice * c.head_dim + i),
                          tokens.get(token, in_token * c.head_dim + i))
                    << "rank " << rank << ", head " << in_slice;
            };
            const int64_t own = c.heads / c.ranks;
            for (int64_t h = 0; h < own; ++h) {
              expect_head(h, rank * own + h);
              if (c.kv_heads == 0) continue;
              const int64_t kv = (rank * own + h) * c.kv_heads / c.heads;  // that this query uses
              const int64_t first = rank * own * c.kv_heads / c.heads;
              expect_head(own + kv - first, c.heads + kv);
              expect_head(own + op.own_kv_heads() + kv - first, c.heads + c.kv_heads + kv);
            }
          }
        }
      }
    }
  }
}

TEST(HeadSlices, UnpackingAddsUpTheCopiesOfAHead) {
  for (DType dtype : kFloatTypes) {
    for (const Case& c : kCases) {
      HeadSlices op = shape_of(c);
      HostTensor tokens(dtype, c.batch * c.seq, op.token_heads() * c.head_dim), back(tokens);
      HostTensor slices(dtype, tokens.rows() * c.ranks, op.slice_heads() * c.head_dim);
      tokens.random(2);
      op.tokens = tokens.view();
      op.slices = slices.view();
      run_on(1, [&](StreamRef stream) { pack_heads(stream, op); });
      op.tokens = back.view();
      run_on(2, [&](StreamRef stream) { unpack_heads(stream, op); });
      std::vector<double> expected;
      for (int64_t row = 0; row < tokens.rows(); ++row) {
        for (int64_t i = 0; i < tokens.cols(); ++i)
          expected.push_back(tokens.get(row, i) * double(op.copies(i / c.head_dim)));
      }
      expect_close(back, expected, dtype == DType::f32 ? 1e-5 : 0, "unpacked");
    }
  }
}

}  // namespace
}  // namespace zeno
