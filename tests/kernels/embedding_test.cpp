#include "zeno/kernels/embedding.h"

#include "tests/kernels/host_tensor.h"

namespace zeno {
namespace {

TEST(Embedding, ForwardPicksRowsAndAddsPositions) {
  for (DType table_type : kFloatTypes) {
    for (DType y_type : kFloatTypes) {
      HostTensor table(table_type, 11, 37), places(table_type, 8, 37), tokens(DType::i32, 1, 20);
      HostTensor positions(DType::i32, 1, 20), y(y_type, 20, 37), plain(y_type, 20, 37);
      table.random(1);
      places.random(2);
      tokens.random_ids(3, 11);
      positions.random_ids(4, 8);
      run_on(2, [&](StreamRef s) {
        embedding_forward(s, {.tokens = tokens.view(),
                              .positions = {},
                              .table = table.view(),
                              .position_table = {},
                              .y = plain.view()});
        embedding_forward(s, {.tokens = tokens.view(),
                              .positions = positions.view(),
                              .table = table.view(),
                              .position_table = places.view(),
                              .y = y.view()});
      });
      for (int64_t r = 0; r < 20; ++r) {
        for (int64_t c = 0; c < 37; ++c) {
          const float token = float(table.get(int64_t(tokens.get(0, r)), c));
          const float sum = token + float(places.get(int64_t(positions.get(0, r)), c));
          const auto stored = [&](float v) {
            return dispatch_float(y_type, [&]<class T>() { return double(float(T(v))); });
          };
          ASSERT_EQ(plain.get(r, c), stored(token));
          ASSERT_EQ(y.get(r, c), stored(sum));
        }
      }
    }
  }
}

TEST(Embedding, BackwardAddsRowsInOrder) {
  for (DType dtype : kFloatTypes) {
    HostTensor ids(DType::i32, 1, 300), dy(dtype, 300, 45), dtable(DType::f32, 40, 45);
    ids.random_ids(1, 17);  // ids 17..39 stay untouched
    dy.random(2);
    dtable.random(3);
    std::vector<float> expected;
    for (double v : dtable.values()) expected.push_back(float(v));
    for (int64_t r = 0; r < 300; ++r) {
      for (int64_t c = 0; c < 45; ++c)
        expected[size_t(int64_t(ids.get(0, r)) * 45 + c)] += float(dy.get(r, c));
    }
    run_on(2, [&](StreamRef s) { embedding_backward(s, ids.view(), dy.view(), dtable.view()); });
    for (int64_t i = 0; i < 40 * 45; ++i) ASSERT_EQ(float(dtable.get(i / 45, i % 45)), expected[size_t(i)]);
  }
}

TEST(Embedding, SixteenBitGradientsAreSummedInFp32) {
  for (DType dtype : {DType::bf16, DType::f16}) {
    // 4096 rows of 1 for one id: a 16-bit running sum would stop at 256 (bf16) or 2048 (fp16).
    HostTensor ids(DType::i32, 1, 4096), dy(dtype, 4096, 3), dtable(dtype, 2, 3);
    for (int64_t r = 0; r < 4096; ++r) {
      for (int64_t c = 0; c < 3; ++c) dy.set(r, c, 1);
    }
    run_on(2, [&](StreamRef s) { embedding_backward(s, ids.view(), dy.view(), dtable.view()); });
    EXPECT_EQ(dtable.get(0, 1), 4096);
    EXPECT_EQ(dtable.get(1, 1), 0);
  }
}

TEST(Embedding, BackwardDoesNotDependOnThreads) {
  for (DType grad_type : kFloatTypes) {
    HostTensor ids(DType::i32, 1, 9000), dy(DType::bf16, 9000, 33), one(grad_type, 100, 33);
    ids.random_ids(5, 100);
    dy.random(6);
    HostTensor zero = one;
    run_on(1, [&](StreamRef s) { embedding_backward(s, ids.view(), dy.view(), one.view()); });
    for (int threads : {2, 3}) {
      HostTensor many = zero;
      run_on(threads, [&](StreamRef s) { embedding_backward(s, ids.view(), dy.view(), many.view()); });
      EXPECT_EQ(many.bytes(), one.bytes());
    }
  }
}

TEST(Embedding, RefusesIdsOutsideTheTable) {
  HostTensor ids(DType::i32, 1, 4), dy(DType::f32, 4, 8), dtable(DType::f32, 5, 8);
  ids.set(0, 1, 5);
  EXPECT_THROW(run_on(2, [&](StreamRef s) { embedding_backward(s, ids.view(), dy.view(), dtable.view()); }),
               Error);
}

}  // namespace
}  // namespace zeno
