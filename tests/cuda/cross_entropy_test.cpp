#include "zeno/kernels/cross_entropy.h"

#include <algorithm>
#include <limits>

#include "tests/cuda/parity.h"
#include "zeno/base/rng.h"

namespace zeno::cuda_tests {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

class CudaCrossEntropy : public Parity {
 protected:
  Twin random_ids(int64_t count, int64_t limit, uint64_t seed) {
    std::vector<int32_t> values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(int32_t(random_bits(seed, 1, uint64_t(i)) % uint64_t(limit)));
    return ints(values);
  }
  void run(const Twin& logits, const Twin& targets, const Twin& losses, const Twin& hits, float scale) {
    const auto op = [&](Tensor Twin::*side) {
      return CrossEntropy{.logits = logits.*side,
                          .targets = targets.*side,
                          .losses = losses.*side,
                          .hits = hits.*side,
                          .grad_scale = scale};
    };
    cross_entropy(cpu, op(&Twin::cpu));
    cross_entropy(*gpu, op(&Twin::gpu));
  }
};

struct Shape {
  int64_t rows, vocabulary, padding;
};

TEST_F(CudaCrossEntropy, LossesHitsAndGradientsAreTheCpus) {
  // Odd widths put rows at every misalignment; the widest do not fit into shared memory.
  const Shape shapes[] = {{40, 1000, 0},  {19, 5003, 0}, {9, 7, 0},   {3, 1, 0},
                          {4, 128256, 0}, {2, 50257, 0}, {6, 512, 3}, {2, 160001, 7}};
  for (DType dtype : kTypes) {
    for (const Shape& s : shapes) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(s.vocabulary));
      const Twin logits = normal(dtype, s.rows, s.vocabulary, 1, 2, 0, s.vocabulary + s.padding);
      const Twin targets = random_ids(s.rows, s.vocabulary, 2);
      const Twin losses = poison(DType::f32, 1, s.rows), hits = poison(DType::i32, 1, s.rows);
      run(logits, targets, losses, hits, 0.25f);
      EXPECT_LE(largest_gap(losses), 2e-6 * 16);  // of logits up to about 10; a loss itself may be 0
      EXPECT_EQ(on_gpu(hits), on_cpu(hits));
      EXPECT_LE(difference(logits), tolerance(dtype));
    }
  }
}

TEST_F(CudaCrossEntropy, WithoutAScaleTheLogitsStay) {
  const Twin logits = normal(DType::bf16, 5, 3001, 1), losses = poison(DType::f32, 1, 5);
  const std::vector<double> before = on_gpu(logits);
  run(logits, random_ids(5, 3001, 2), losses, Twin{}, 0);
  EXPECT_LE(difference(losses), 2e-6);
  EXPECT_EQ(on_gpu(logits), before);
}

TEST_F(CudaCrossEntropy, TheFirstOfEqualLogitsIsTheArgMax) {
  const Twin logits = zeros(DType::bf16, 4, 2000);
  const int32_t places[4][2] = {{100, 1500}, {100, 1500}, {0, 1999}, {7, 8}};
  for (int64_t r = 0; r < 4; ++r) {
    for (int32_t at : places[r]) logits.cpu.row<BF16>(r)[at] = BF16(4.0f);
  }
  upload(logits);
  const Twin hits = poison(DType::i32, 1, 4);
  run(logits, ints({100, 1500, 0, 8}), poison(DType::f32, 1, 4), hits, 1);
  EXPECT_EQ(on_gpu(hits), (std::vector<double>{1, 0, 1, 0}));
  EXPECT_EQ(on_gpu(hits), on_cpu(hits));
}

TEST_F(CudaCrossEntropy, MaskedLogitsHaveNoWeight) {
  const Twin logits = normal(DType::f32, 3, 4000, 1);
  for (int64_t r = 0; r < 3; ++r) {
    std::fill_n(logits.cpu.row<float>(r), 3900, -std::numeric_limits<float>::infinity());
  }
  upload(logits);
  const Twin losses = poison(DType::f32, 1, 3);
  run(logits, ints({3950, 3999, 3900}), losses, Twin{}, 1);
  EXPECT_LE(difference(losses), 2e-6);
  EXPECT_LE(difference(logits), tolerance(DType::f32));
}

TEST_F(CudaCrossEntropy, RowsAreGatheredAndScattered) {
  struct Rows {
    DType dtype;
    int64_t cols, padding;
  };
  const Rows rows[] = {{DType::i32, 1, 0},  {DType::bf16, 64, 0}, {DType::bf16, 33, 0},  {DType::f32, 6, 0},
                       {DType::f16, 12, 4}, {DType::f32, 1, 0},   {DType::bf16, 2048, 8}};
  std::vector<int32_t> order(300);
  for (size_t i = 0; i < order.size(); ++i) order[i] = int32_t(i * 7 % 300);
  const Twin index = ints(order);
  for (const Rows& r : rows) {
    SCOPED_TRACE(std::string(name_of(r.dtype)) + " " + std::to_string(r.cols));
    Twin src;
    if (r.dtype == DType::i32) {
      src = random_ids(300, 1 << 30, 1);
      for (Tensor Twin::*side : {&Twin::cpu, &Twin::gpu})
        src.*side = Tensor((src.*side).data, r.dtype, 300, 1);
    } else {
      src = normal(r.dtype, 300, r.cols, 1, 1, 0, r.cols + r.padding);
    }
    for (bool scatter : {false, true}) {
      const Twin dst = poison(r.dtype, 300, r.cols);
      const auto copy = scatter ? scatter_rows : gather_rows;
      copy(cpu, src.cpu, index.cpu, dst.cpu);
      copy(*gpu, src.gpu, index.gpu, dst.gpu);
      EXPECT_EQ(on_gpu(dst), on_cpu(dst)) << scatter;
    }
  }
}

}  // namespace
}  // namespace zeno::cuda_tests
