#include "zeno/kernels/stochastic_rounding.h"

#include <cmath>
#include <limits>

#include "tests/kernels/host_tensor.h"
#include "zeno/kernels/optimizer.h"

namespace zeno {
namespace {

// Between two neighbours, the mean of n roundings is off by at most the distance / (2 √n) per standard
// deviation.
TEST(StochasticRounding, IsUnbiasedForEveryRole) {
  constexpr int64_t n = 200000;
  for (StateRole role : {StateRole::master, StateRole::m, StateRole::v}) {
    for (float value : {1.0f + 0x1p-9f, 1.001f, -3.14159f, 1e-30f * 1.2345f, 1.0f + 0x1p-7f - 0x1p-23f}) {
      const StochasticRounding rounding(5, 17);
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        const float rounded = StochasticRounding::round(value, rounding.noise(i), role);
        ASSERT_EQ(rounded, float(BF16(rounded))) << "not a bf16 number";
        ASSERT_LE(std::abs(rounded - value), 0x1p-7f * std::abs(value));
        sum += rounded;
      }
      EXPECT_NEAR(sum / n, value, 5 * 0x1p-7 * std::abs(value) / (2 * std::sqrt(double(n)))) << value;
    }
  }
}

TEST(StochasticRounding, NumbersOfBf16AndNonFiniteOnesStay) {
  const StochasticRounding rounding(1, 1);
  const float inf = std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < 1000; ++i) {
    for (float value : {0.0f, -0.0f, 1.5f, -256.0f, 0x1p-133f, inf, -inf}) {
      EXPECT_EQ(StochasticRounding::round(value, rounding.noise(i), StateRole::v), value);
    }
    EXPECT_TRUE(std::isnan(StochasticRounding::round(std::nanf(""), rounding.noise(i), StateRole::m)));
  }
}

TEST(StochasticRounding, StepsSeedsRolesAndElementsDrawTheirOwn) {
  const auto ups = [](uint64_t seed, int64_t step, StateRole role, int64_t first) {
    std::vector<bool> up;
    const StochasticRounding rounding(seed, step);
    for (int64_t i = 0; i < 64; ++i) {
      up.push_back(StochasticRounding::round(1.0f + 0x1p-8f, rounding.noise(first + i), role) > 1.0f);
    }
    return up;
  };
  const auto one = ups(1, 1, StateRole::master, 0);
  EXPECT_EQ(one, ups(1, 1, StateRole::master, 0));
  EXPECT_NE(one, ups(2, 1, StateRole::master, 0));
  EXPECT_NE(one, ups(1, 2, StateRole::master, 0));
  EXPECT_NE(one, ups(1, 1, StateRole::m, 0));
  EXPECT_NE(one, ups(1, 1, StateRole::master, 64));
}

struct Rounded {
  explicit Rounded(int64_t n)
      : grad(DType::bf16, 1, n), master(DType::bf16, 1, n), m(DType::bf16, 1, n), v(DType::bf16, 1, n) {
    grad.random(1);
    master.random(2);
  }
  OptimizerUpdate part(int64_t begin, int64_t count, const float* factor) {
    return {.hyper = {.kind = OptimizerHyper::Kind::adamw, .lr = 1e-4, .step = 3},
            .grad = grad.view().columns(begin, count),
            .master = master.view().columns(begin, count),
            .m = m.view().columns(begin, count),
            .v = v.view().columns(begin, count),
            .grad_factor = factor,
            .seed = 11,
            .first_index = begin};
  }
  HostTensor grad, master, m, v;
};

TEST(StochasticRounding, CutsAndThreadsDoNotChangeTheBits) {
  constexpr int64_t n = 40001;
  const float factor = 1;
  Rounded whole(n);
  run_on(1, [&](StreamRef s) { optimizer_update(s, whole.part(0, n, &factor)); });
  Rounded cut(n);
  run_on(2, [&](StreamRef s) {
    for (int64_t begin = 0; begin < n; begin += 777) {
      optimizer_update(s, cut.part(begin, std::min<int64_t>(777, n - begin), &factor));
    }
  });
  EXPECT_EQ(cut.master.bytes(), whole.master.bytes());
  EXPECT_EQ(cut.m.bytes(), whole.m.bytes());
  EXPECT_EQ(cut.v.bytes(), whole.v.bytes());
}

// A step of 1e-4 on weights near 1 is far below half a unit of bf16 (2^-9): rounded to nearest, nothing would
// move.
TEST(StochasticRounding, SmallStepsAddUpOnAverage) {
  constexpr int64_t n = 4096, steps = 100;
  const float factor = 1;
  Rounded state(n);
  for (int64_t i = 0; i < n; ++i) {
    state.grad.set(0, i, 1);
    state.master.set(0, i, 1.5);
  }
  run_on(1, [&](StreamRef s) {
    for (int64_t step = 1; step <= steps; ++step) {
      OptimizerUpdate op = state.part(0, n, &factor);
      op.hyper.step = step;
      optimizer_update(s, op);
    }
  });
  double mean = 0;
  for (int64_t i = 0; i < n; ++i) mean += state.master.get(0, i) / double(n);
  EXPECT_NEAR(mean, 1.5 - 1e-4 * steps, 1.5e-3);
}

}  // namespace
}  // namespace zeno
