#include "zeno/kernels/noise.h"

#include "tests/kernels/every_target.h"
#include "tests/kernels/host_tensor.h"

namespace zeno {
namespace {

constexpr uint64_t kSite = 17;

struct Key {
  int64_t value = -5;
  Tensor view() { return {&value, DType::i64, 1, 1}; }
  uint32_t bits(int64_t row, int64_t col) const {
    return random_bits32(noise_key(uint64_t(value), kSite, row), uint32_t(col));
  }
};

TEST(Dropout, IsTheDefinitionOnEveryTargetTypeAndStride) {
  on_every_target([](int64_t) {
    for (DType dtype : kFloatTypes) {
      for (int64_t cols : {1, 7, 16, 37}) {
        Key key;
        HostTensor x(dtype, 9, cols, cols + 3), y(dtype, 9, cols, cols + 1), sum(dtype, 9, cols);
        x.random(1);
        sum.random(2);
        std::vector<double> dropped, summed;
        for (int64_t r = 0; r < 9; ++r) {
          for (int64_t c = 0; c < cols; ++c) {
            const bool keep = key.bits(r + 4, c) >= dropout_threshold(0.3f);
            dropped.push_back(keep ? x.get(r, c) / (1 - 0.3f) : 0);
            summed.push_back(sum.get(r, c) + dropped.back());
          }
        }
        const NoiseSource noise{key.view(), kSite, 4};
        run_on(2, [&](StreamRef s) {
          dropout(s, {.x = x.view(), .y = y.view(), .noise = noise, .probability = 0.3f});
          dropout(s,
                  {.x = x.view(), .y = sum.view(), .noise = noise, .probability = 0.3f, .accumulate = true});
        });
        expect_close(y, dropped, 1e-6, "dropout");
        expect_close(sum, summed, 1e-6, "added");
      }
    }
  });
}

// Rows in parts, in place, on any number of threads: the same bits; another key, site or row: others.
TEST(Dropout, DependsOnKeySiteAndRowOnly) {
  Key key, other{6};
  HostTensor x(DType::f32, 40, 24);
  x.random(3);
  const auto run = [&](Tensor k, uint64_t site, int64_t first, int threads, int64_t part) {
    HostTensor y = x;
    run_on(threads, [&](StreamRef s) {
      for (int64_t r = 0; r < 40; r += part) {
        const Tensor rows = y.view().slice(r, part);
        dropout(s, {.x = rows, .y = rows, .noise = {k, site, first + r}, .probability = 0.5f});
      }
    });
    return y.bytes();
  };
  const Bytes reference = run(key.view(), kSite, 0, 1, 40);
  EXPECT_EQ(run(key.view(), kSite, 0, 3, 8), reference);
  EXPECT_NE(run(other.view(), kSite, 0, 1, 40), reference);
  EXPECT_NE(run(key.view(), kSite + 1, 0, 1, 40), reference);
  EXPECT_NE(run(key.view(), kSite, 1, 1, 40), reference);
}

TEST(Dropout, KeepsTheShareAndTheMean) {
  Key key;
  for (float p : {0.0f, 0.1f, 0.5f, 0.9f}) {
    HostTensor y(DType::f32, 400, 250);
    for (int64_t i = 0; i < 100000; ++i) y.set(i / 250, i % 250, 1);
    run_on(2, [&](StreamRef s) {
      dropout(s, {.x = y.view(), .y = y.view(), .noise = {key.view(), kSite, 0}, .probability = p});
    });
    double mean = 0, zeros = 0;
    for (double v : y.values()) {
      mean += v / 100000;
      zeros += v == 0 ? 1e-5 : 0;
    }
    EXPECT_NEAR(zeros, p, 0.006);
    EXPECT_NEAR(mean, 1, 5 * std::sqrt(p / (1 - p) / 100000) + 1e-6);
  }
}

TEST(UniformNoise, IsTheDefinitionAndFillsItsRange) {
  on_every_target([](int64_t) {
    for (DType dtype : kFloatTypes) {
      Key key;
      HostTensor y(dtype, 50, 33, 40);
      y.random(4);
      std::vector<double> expected;
      double low = 0, high = 0, mean = 0;
      for (int64_t r = 0; r < 50; ++r) {
        for (int64_t c = 0; c < 33; ++c) {
          const double unit = noise_unit(key.bits(r, c));
          expected.push_back(y.get(r, c) + 0.25 * unit);
          low = std::min(low, unit);
          high = std::max(high, unit);
          mean += unit / (50 * 33);
        }
      }
      run_on(2, [&](StreamRef s) {
        add_uniform_noise(s, {.y = y.view(), .noise = {key.view(), kSite, 0}, .size = 0.25f});
      });
      expect_close(y, expected, 1e-6, "noise");
      EXPECT_LT(low, -0.99);
      EXPECT_GE(low, -1);
      EXPECT_GT(high, 0.99);
      EXPECT_LT(high, 1);
      EXPECT_NEAR(mean, 0, 0.07);
    }
  });
}

}  // namespace
}  // namespace zeno
