// The small parts: embedding, rope table, layout.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/expect_error.h"
#include "tests/support/kernel_stream.h"
#include "tests/support/memory.h"
#include "zeno/nn/embedding.h"
#include "zeno/nn/layout.h"
#include "zeno/nn/rope_table.h"

namespace zeno::test {
namespace {

TEST(Layout, CountingAndCuttingAgree) {
  const auto cut = [](nn::Layout& layout) {
    std::vector<Tensor> t{layout.take(DType::f32, 3, 5), layout.take(DType::bf16, 7, 9)};
    const size_t mark = layout.mark();
    t.push_back(layout.take(DType::f32, 100, 1));
    layout.rewind(mark);
    t.push_back(layout.take(DType::u8, 1, 13));
    return t;
  };
  nn::Layout counting;
  for (const Tensor& t : cut(counting)) EXPECT_EQ(t.data, nullptr);
  Memory memory(counting.peak());
  nn::Layout cutting(memory.bytes());
  const std::vector<Tensor> t = cut(cutting);
  EXPECT_EQ(cutting.peak(), counting.peak());
  for (const Tensor& view : t) EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % nn::Layout::kAlignment, 0u);
  EXPECT_EQ(t[2].data, t[3].data);
  EXPECT_GE(t[1].data, t[0].data + t[0].bytes());
  EXPECT_LE(t[2].data + t[2].bytes(), memory.bytes().data + memory.bytes().bytes());

  Memory small(counting.peak() - 1);
  nn::Layout too_small(small.bytes());
  expect_error(ErrorKind::internal, {"layout", "sizes()"}, [&] { cut(too_small); });
}

TEST(RopeTable, HoldsCosinesThenSines) {
  const nn::RopeTable table(32, 8, 10000.0);
  const Tensor t = table.host_view();
  ASSERT_EQ(t.rows, 32);
  ASSERT_EQ(t.cols, 8);
  for (int64_t p = 0; p < 32; ++p)
    for (int64_t i = 0; i < 4; ++i) {
      const double angle = double(p) * std::pow(10000.0, -double(i) / 4);
      EXPECT_NEAR(t.row<float>(p)[i], std::cos(angle), 3e-6);
      EXPECT_NEAR(t.row<float>(p)[4 + i], std::sin(angle), 3e-6);
    }
}

TEST(RopeTable, RefusesImpossibleSizes) {
  expect_error(ErrorKind::data, {"head_dim", "7", "even"}, [] { nn::RopeTable(16, 7, 10000.0); });
  expect_error(ErrorKind::data, {"positions", "0"}, [] { nn::RopeTable(0, 8, 10000.0); });
  expect_error(ErrorKind::memory, {"2147483647 positions", "512.00 TiB", "--seq-len"},
               [] { nn::RopeTable((int64_t(1) << 31) - 1, 1 << 16, 10000.0); });
}

class Embedding : public ::testing::Test {
 protected:
  static constexpr int64_t kVocab = 5, kHidden = 3, kPositions = 4;
  std::vector<int32_t> tokens_{4, 0, 4, 2}, positions_{0, 1, 2, 0};

  nn::Batch batch() {
    return {.shape = {1, 4},
            .tokens = {tokens_.data(), DType::i32, 1, 4},
            .targets = {},
            .positions = {positions_.data(), DType::i32, 1, 4},
            .doc_start = {},
            .valid_rows = {}};
  }
  static std::vector<float> counted(int64_t count, float first) {
    std::vector<float> v;
    for (int64_t i = 0; i < count; ++i) v.push_back(first + float(i));
    return v;
  }
};

TEST_F(Embedding, AddsPositionsAndItsBackwardAddsRows) {
  const auto layer = nn::make_embedding({.vocab = kVocab,
                                         .hidden = kHidden,
                                         .positions = kPositions,
                                         .table = {},
                                         .position_table = {},
                                         .tied = true});
  EXPECT_FALSE(layer->backward_needs_params());
  EXPECT_EQ(layer->sizes({1, 4}, DType::f32, nn::Recompute::none).saved, 0u);
  Memory table(DType::f32, kVocab, kHidden), place(DType::f32, kPositions, kHidden),
      y(DType::f32, 4, kHidden);
  Memory dtable(DType::f32, kVocab, kHidden), dplace(DType::f32, kPositions, kHidden);
  from_floats(counted(15, 0), table.view());
  from_floats(counted(12, 100), place.view());
  from_floats(counted(15, 1000), dtable.view());
  dplace.zero();
  KernelStream stream;
  const nn::Batch b = batch();
  const std::vector<Tensor> params{table.view(), place.view()}, grads{dtable.view(), dplace.view()};
  layer->forward({.stream = stream.ref(), .batch = b, .params = params, .y = y.view()}, nn::Recompute::none);
  layer->backward({.stream = stream.ref(), .batch = b, .params = {}, .grads = grads, .dy = y.view()},
                  nn::Recompute::none);
  stream.sync();
  const std::vector<float> out = to_floats(y.view());
  EXPECT_EQ(out, (std::vector<float>{112, 114, 116, 103, 105, 107, 118, 120, 122, 106, 108, 110}));
  std::vector<float> expected = counted(15, 1000);
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 3; ++c) expected[size_t(tokens_[size_t(r)] * 3 + c)] += out[size_t(r * 3 + c)];
  EXPECT_EQ(to_floats(dtable.view()), expected);
  EXPECT_EQ(to_floats(dplace.view()),
            (std::vector<float>{218, 222, 226, 103, 105, 107, 118, 120, 122, 0, 0, 0}));
}

TEST_F(Embedding, OnlyAnUntiedTableIsSparse) {
  for (bool tied : {false, true}) {
    const auto list = nn::make_embedding({.vocab = kVocab,
                                          .hidden = kHidden,
                                          .table = {{.name = "wte"}},
                                          .position_table = {},
                                          .tied = tied})
                          ->parameters();
    ASSERT_EQ(list.size(), 1u);
    EXPECT_EQ(list[0].name, "embed.weight");
    EXPECT_EQ(list[0].sparse_rows, !tied);
    EXPECT_TRUE(list[0].decay);
    EXPECT_EQ(list[0].files[0].name, "wte");
  }
}

}  // namespace
}  // namespace zeno::test
