// What can be said about fp8 without a GPU: the memory it asks for, and the sizes it does not take.
#include "zeno/nn/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/support/expect_error.h"
#include "zeno/nn/block.h"

namespace zeno::test {
namespace {

std::unique_ptr<nn::Layer> make_block(int64_t intermediate) {
  return nn::make_block({.hidden = 64,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = 16,
                         .intermediate = intermediate,
                         .name = "blocks.0",
                         .files = {}});
}

TEST(LinearFp8, WorkspaceHoldsTheCopiesOfOnePass) {
  for (const auto& [rows, in, out] :
       {std::array<int64_t, 3>{160, 64, 256}, {160, 256, 64}, {32, 1024, 2048}, {16, 16, 16}}) {
    nn::Layout work;
    nn::take_fp8(work, rows, in, out);
    const int64_t forward = rows * in + out * in;
    const int64_t backward = rows * out + std::max(rows * out + rows * in, in * out);
    const size_t least = size_t(std::max(forward, backward));
    EXPECT_GE(work.peak(), least);
    EXPECT_LE(work.peak(), least + 8 * nn::Layout::kAlignment);
  }
}

TEST(LinearFp8, BlocksBookItAndKeepNothingMore) {
  const auto block = make_block(4096);
  nn::Layout widest;  // gate and up
  nn::take_fp8(widest, 160, 64, 8192);
  for (nn::Recompute mode : {nn::Recompute::none, nn::Recompute::selective, nn::Recompute::full}) {
    nn::BatchShape shape{.batch = 2, .seq = 80, .device = Device::Kind::cuda};
    const nn::LayerSizes plain = block->sizes(shape, DType::bf16, mode);
    shape.fp8 = true;
    const nn::LayerSizes fp8 = block->sizes(shape, DType::bf16, mode);
    EXPECT_EQ(fp8.saved, plain.saved);
    EXPECT_GE(fp8.workspace, widest.peak());
    EXPECT_GT(fp8.workspace, plain.workspace);
  }
}

TEST(LinearFp8, SizesThatAreNoMultiplesOf16AreRefused) {
  nn::BatchShape shape{.batch = 2, .seq = 80, .fp8 = true};
  expect_error(ErrorKind::usage, {"264", "multiples of 16", "--matmul-dtype"},
               [&] { make_block(132)->sizes(shape, DType::bf16, nn::Recompute::none); });
  shape.seq = 81;
  expect_error(ErrorKind::usage, {"162 tokens", "multiples of 16", "--seq-len"},
               [&] { make_block(128)->sizes(shape, DType::bf16, nn::Recompute::none); });
}

}  // namespace
}  // namespace zeno::test
