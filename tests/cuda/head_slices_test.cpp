#include "zeno/kernels/head_slices.h"

#include "tests/cuda/parity.h"

namespace zeno::cuda_tests {
namespace {

class CudaHeadSlices : public Parity {};

TEST_F(CudaHeadSlices, PassBetweenTokensAndHeadsAsOnTheCpu) {
  struct Shape {
    int64_t batch, seq, ranks, heads, kv_heads, head_dim;
  };
  // Whole words of 16 bytes and not; copies of key heads; attention's output, which has none.
  for (const Shape& s : {Shape{2, 33, 2, 4, 2, 64}, Shape{1, 50, 4, 8, 2, 80}, Shape{3, 7, 2, 6, 2, 5},
                         Shape{2, 9, 8, 8, 1, 128}, Shape{2, 40, 4, 16, 0, 64}}) {
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      HeadSlices op{.batch = s.batch,
                    .seq = s.seq,
                    .ranks = s.ranks,
                    .heads = s.heads,
                    .kv_heads = s.kv_heads,
                    .head_dim = s.head_dim,
                    .tokens = {},
                    .slices = {}};
      const int64_t rows = s.batch * s.seq;
      const Twin tokens = normal(dtype, rows, op.token_heads() * s.head_dim, 1),
                 back = poison(dtype, rows, op.token_heads() * s.head_dim),
                 slices = poison(dtype, rows * s.ranks, op.slice_heads() * s.head_dim);
      const auto pass = [&](StreamRef stream, Tensor Twin::*side) {
        op.tokens = tokens.*side;
        op.slices = slices.*side;
        pack_heads(stream, op);
        op.tokens = back.*side;
        unpack_heads(stream, op);
      };
      pass(cpu, &Twin::cpu);
      pass(*gpu, &Twin::gpu);
      EXPECT_EQ(difference(slices), 0) << name_of(dtype);
      EXPECT_EQ(difference(back), 0) << name_of(dtype);
    }
  }
}

}  // namespace
}  // namespace zeno::cuda_tests
