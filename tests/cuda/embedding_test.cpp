#include "zeno/kernels/embedding.h"

#include "tests/cuda/parity.h"
#include "zeno/base/rng.h"

namespace zeno::cuda_tests {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

class CudaEmbedding : public Parity {
 protected:
  // Small ids come often, most large ones never.
  Twin ids(int64_t count, int64_t limit, uint64_t seed) {
    std::vector<int32_t> values;
    for (int64_t i = 0; i < count; ++i) {
      const double u = random_uniform(seed, 1, uint64_t(i));
      values.push_back(int32_t(double(limit) * u * u * u * u));
    }
    return ints(values);
  }
};

TEST_F(CudaEmbedding, ForwardGivesTheBitsOfTheCpu) {
  for (DType weights : kTypes) {
    for (DType dtype : kTypes) {
      for (int64_t cols : {256, 40, 33}) {
        const Twin tokens = ids(70, 50, 1), positions = ids(70, 20, 2);
        const Twin table = normal(weights, 50, cols, 3), places = normal(weights, 20, cols, 4);
        for (bool with_places : {false, true}) {
          const Twin y = poison(dtype, 70, cols);
          const auto op = [&](Tensor Twin::*side) {
            return EmbeddingForward{.tokens = tokens.*side,
                                    .positions = with_places ? positions.*side : Tensor(),
                                    .table = table.*side,
                                    .position_table = with_places ? places.*side : Tensor(),
                                    .y = y.*side};
          };
          embedding_forward(cpu, op(&Twin::cpu));
          embedding_forward(*gpu, op(&Twin::gpu));
          EXPECT_EQ(on_gpu(y), on_cpu(y)) << name_of(weights) << " " << name_of(dtype) << " " << cols;
        }
      }
    }
  }
}

struct Sizes {
  int64_t rows, ids, cols, padding;
};

// The same rows in the same order: the bits have to agree.
TEST_F(CudaEmbedding, BackwardGivesTheBitsOfTheCpu) {
  const Sizes sizes[] = {
      {3000, 1000, 520, 8}, {5000, 3, 64, 0}, {700, 300, 33, 0}, {1, 5, 8, 0}, {31, 1, 12, 0}};
  for (DType dtype : kTypes) {
    for (DType gradients : kTypes) {
      for (const Sizes& s : sizes) {
        const Twin rows = ids(s.rows, s.ids, 5);
        const Twin dy = normal(dtype, s.rows, s.cols, 6, 1, 0, s.cols + s.padding);
        const Twin dtable = normal(gradients, s.ids, s.cols, 7);
        embedding_backward(cpu, rows.cpu, dy.cpu, dtable.cpu);
        embedding_backward(*gpu, rows.gpu, dy.gpu, dtable.gpu);
        EXPECT_EQ(on_gpu(dtable), on_cpu(dtable))
            << name_of(dtype) << " " << name_of(gradients) << " " << s.rows << " x " << s.cols;
      }
    }
  }
}

TEST_F(CudaEmbedding, BackwardTakesManyRows) {
  const Twin rows = ids(150000, 2000, 8);
  const Twin dy = normal(DType::bf16, 150000, 8, 9);
  const Twin dtable = zeros(DType::f32, 2000, 8);
  embedding_backward(cpu, rows.cpu, dy.cpu, dtable.cpu);
  embedding_backward(*gpu, rows.gpu, dy.gpu, dtable.gpu);
  EXPECT_EQ(on_gpu(dtable), on_cpu(dtable));
}

}  // namespace
}  // namespace zeno::cuda_tests
