#include "zeno/kernels/cross_entropy.h"

#include <limits>

#include "tests/kernels/host_tensor.h"

namespace zeno {
namespace {

double row_loss(const std::vector<double>& x, size_t begin, size_t count, size_t target) {
  double max = -1e300, sum = 0;
  for (size_t i = 0; i < count; ++i) max = std::max(max, x[begin + i]);
  for (size_t i = 0; i < count; ++i) sum += std::exp(x[begin + i] - max);
  return std::log(sum) + max - x[begin + target];
}

struct Problem {
  Problem(DType dtype, int64_t rows, int64_t vocab, double scale)
      : logits(dtype, rows, vocab),
        targets(DType::i32, 1, rows),
        losses(DType::f32, 1, rows),
        hits(DType::i32, 1, rows) {
    logits.random(uint64_t(vocab), scale);
    targets.random_ids(2, vocab);
  }
  CrossEntropy op(float grad_scale) {
    return {.logits = logits.view(),
            .targets = targets.view(),
            .losses = losses.view(),
            .hits = hits.view(),
            .grad_scale = grad_scale};
  }
  size_t target(int64_t r) const { return size_t(targets.get(0, r)); }
  HostTensor logits, targets, losses, hits;
};

TEST(CrossEntropy, LossesAndGradientsFollowTheReference) {
  for (DType dtype : kFloatTypes) {
    for (int64_t vocab : {1, 2, 15, 16, 33, 130}) {
      Problem p(dtype, 4, vocab, 3.0);
      const std::vector<double> x = p.logits.values();
      run_on(2, [&](StreamRef s) { cross_entropy(s, p.op(0.25f)); });
      const auto loss = [&](const std::vector<double>& v) {
        double sum = 0;
        for (int64_t r = 0; r < 4; ++r) sum += row_loss(v, size_t(r * vocab), size_t(vocab), p.target(r));
        return 0.25 * sum;
      };
      expect_close(p.logits, numeric_gradient(x, loss), 1e-7, "dlogits");
      for (int64_t r = 0; r < 4; ++r) {
        const double expected = row_loss(x, size_t(r * vocab), size_t(vocab), p.target(r));
        EXPECT_NEAR(p.losses.get(0, r), expected, 2e-7 * (expected + 1));
      }
    }
  }
}

TEST(CrossEntropy, StaysAccurateForLargeVocabulariesAndSmallLosses) {
  Problem p(DType::f32, 3, 50257, 2.0);
  p.logits.set(1, int64_t(p.target(1)), 40);      // loss far below the rounding of the log-sum-exp
  p.logits.set(2, int64_t(p.target(2)), -90000);  // and a huge one
  const std::vector<double> x = p.logits.values();
  run_on(2, [&](StreamRef s) { cross_entropy(s, p.op(0)); });
  EXPECT_EQ(p.logits.values(), x);  // no gradient wanted: logits untouched
  for (int64_t r = 0; r < 3; ++r) {
    const double expected = row_loss(x, size_t(r) * 50257, 50257, p.target(r));
    EXPECT_NEAR(p.losses.get(0, r), expected, 3e-7 * expected + 1.2e-7) << r;
  }
}

TEST(CrossEntropy, HitsCountTheFirstMaximumOnly) {
  Problem p(DType::bf16, 4, 70, 1.0);
  for (int64_t r = 0; r < 4; ++r) p.targets.set(0, r, 66);
  p.logits.set(0, 66, 9);  // the only maximum
  p.logits.set(1, 66, 9);  // a tie with a lower index
  p.logits.set(1, 65, 9);
  p.logits.set(2, 66, 9);  // a tie with a higher index
  p.logits.set(2, 69, 9);
  p.logits.set(3, 68, 9);  // another one is larger
  run_on(2, [&](StreamRef s) { cross_entropy(s, p.op(1)); });
  const double expected[] = {1, 0, 1, 0};
  for (int64_t r = 0; r < 4; ++r) EXPECT_EQ(p.hits.get(0, r), expected[r]) << r;
}

TEST(CrossEntropy, NegativeLogitsOnlyAndMinusInfinity) {
  Problem p(DType::f32, 1, 19, 1.0);  // the missing lanes of the tail must not count as zeros
  for (int64_t i = 0; i < 19; ++i) p.logits.set(0, i, -1000 - double(i));
  p.logits.set(0, 4, -std::numeric_limits<double>::infinity());
  p.targets.set(0, 0, 2);
  std::vector<double> x = p.logits.values();
  run_on(1, [&](StreamRef s) { cross_entropy(s, p.op(1)); });
  EXPECT_NEAR(p.losses.get(0, 0), row_loss(x, 0, 19, 2), 1e-6);
  EXPECT_EQ(p.logits.get(0, 4), 0);
}

TEST(CrossEntropy, NanReachesTheLoss) {
  for (int64_t place : {0, 17, 40}) {
    Problem p(DType::f32, 1, 41, 1.0);
    p.logits.set(0, place, std::nan(""));
    run_on(1, [&](StreamRef s) { cross_entropy(s, p.op(1)); });
    EXPECT_TRUE(std::isnan(p.losses.get(0, 0))) << place;
  }
}

TEST(CrossEntropy, ThreadsDoNotMatter) {
  Problem one(DType::bf16, 37, 1003, 2.0);
  const Problem start = one;
  run_on(1, [&](StreamRef s) { cross_entropy(s, one.op(0.5f)); });
  for (int threads : {2, 3}) {
    Problem many = start;
    run_on(threads, [&](StreamRef s) { cross_entropy(s, many.op(0.5f)); });
    EXPECT_EQ(many.logits.bytes(), one.logits.bytes());
    EXPECT_EQ(many.losses.bytes(), one.losses.bytes());
  }
}

TEST(CrossEntropy, RefusesTargetsOutsideTheVocabulary) {
  Problem p(DType::f32, 2, 10, 1.0);
  p.targets.set(0, 1, 10);
  EXPECT_THROW(run_on(1, [&](StreamRef s) { cross_entropy(s, p.op(1)); }), Error);
}

TEST(Rows, GatherThenScatterRestoresTheChosenRows) {
  HostTensor src(DType::bf16, 50, 13, 17), index(DType::i32, 1, 20), packed(DType::bf16, 20, 13), back = src;
  src.random(1);
  for (int64_t i = 0; i < 20; ++i) index.set(0, i, double((i * 7 + 3) % 50));
  run_on(2, [&](StreamRef s) {
    gather_rows(s, src.view(), index.view(), packed.view());
    scatter_rows(s, packed.view(), index.view(), back.view());
  });
  for (int64_t r = 0; r < 50; ++r) {
    bool chosen = false;
    for (int64_t i = 0; i < 20; ++i) chosen |= index.get(0, i) == double(r);
    for (int64_t c = 0; c < 13; ++c) ASSERT_EQ(back.get(r, c), chosen ? src.get(r, c) : 0);
  }
  index.set(0, 5, 50);
  EXPECT_THROW(run_on(2, [&](StreamRef s) { gather_rows(s, src.view(), index.view(), packed.view()); }),
               Error);
}

}  // namespace
}  // namespace zeno
