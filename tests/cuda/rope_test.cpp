#include "zeno/kernels/rope.h"

#include "tests/cuda/parity.h"

namespace zeno::cuda_tests {
namespace {

class CudaRope : public Parity {};

struct Shape {
  int64_t rows, heads, head_dim;
  int64_t before, after;  // columns of the packed matrix on both sides of the heads
};

TEST_F(CudaRope, TurnsTheHeadsOfAPackedMatrixAsTheCpuDoes) {
  constexpr int64_t kPositions = 50;
  const Shape shapes[] = {{33, 4, 64, 0, 128}, {7, 3, 128, 64, 8}, {100, 5, 80, 16, 0}, {3, 2, 6, 0, 4},
                          {9, 1, 96, 3, 0},    {2, 32, 64, 0, 0},  {1, 2, 2, 0, 0}};
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Shape& s : shapes) {
      const Twin table = zeros(DType::f32, kPositions, s.head_dim);
      rope_table(table.cpu, rope_frequencies(s.head_dim, 10000, {}));
      upload(table);
      std::vector<int32_t> positions;
      for (int64_t r = 0; r < s.rows; ++r) positions.push_back(int32_t(r * 17 % kPositions));
      const Twin where = ints(positions);
      const int64_t width = s.heads * s.head_dim;
      const Twin packed = normal(dtype, s.rows, s.before + width + s.after, 1);
      for (bool inverse : {false, true}) {
        for (Tensor Twin::*side : {&Twin::cpu, &Twin::gpu}) {
          rope(side == &Twin::cpu ? StreamRef(cpu) : StreamRef(*gpu),
               {.x = (packed.*side).columns(s.before, width),
                .positions = where.*side,
                .table = table.*side,
                .head_dim = s.head_dim,
                .inverse = inverse});
        }
        // The whole matrix: nothing beside the heads may change.
        EXPECT_LE(difference(packed), tolerance(dtype))
            << name_of(dtype) << " head " << s.head_dim << " inverse " << inverse;
      }
    }
  }
}

}  // namespace
}  // namespace zeno::cuda_tests
