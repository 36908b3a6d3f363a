#include "zeno/kernels/grad_scan.h"

#include <bit>
#include <limits>

#include "tests/kernels/host_tensor.h"

namespace zeno {
namespace {

GradScan scan(Tensor grad, int threads) {
  GradScan result;
  run_on(threads, [&](StreamRef s) { grad_scan(s, grad, &result); });
  return result;
}

TEST(GradScan, IsAccurateForAllTypesAndSizes) {
  for (DType dtype : kFloatTypes) {
    for (int64_t n : {1, 63, 64, 65, 1000, 70000}) {
      HostTensor x(dtype, 1, n);
      x.random(uint64_t(n), dtype == DType::f16 ? 1.0 : 1e-6);
      long double expected = 0;
      for (double v : x.values()) expected += (long double)v * v;
      const GradScan result = scan(x.view(), 2);
      EXPECT_EQ(result.nonfinite, 0);
      EXPECT_NEAR(result.squares.value(), double(expected), 1e-12 * double(expected));
    }
  }
}

TEST(GradScan, ThreadsAndCutsDoNotChangeTheBits) {
  HostTensor x(DType::f32, 1, 300000);
  x.random(3, 1e3);
  const uint64_t expected = std::bit_cast<uint64_t>(scan(x.view(), 1).squares.value());
  for (int threads : {2, 3})
    EXPECT_EQ(std::bit_cast<uint64_t>(scan(x.view(), threads).squares.value()), expected);
  for (uint64_t trial = 0; trial < 5; ++trial) {
    GradScan total;
    run_on(2, [&](StreamRef s) {
      for (int64_t begin = 0, end; begin < x.cols(); begin = end) {
        const int64_t blocks = 1 + int64_t(random_bits(trial, 1, uint64_t(begin)) % 1500);
        end = std::min(x.cols(), begin + blocks * kNormBlock);
        grad_scan(s, x.view().columns(begin, end - begin), &total);
      }
    });
    EXPECT_EQ(std::bit_cast<uint64_t>(total.squares.value()), expected);
  }
}

TEST(GradScan, CountsNonFiniteElementsAndLeavesThemOut) {
  for (DType dtype : kFloatTypes) {
    HostTensor x(dtype, 1, 5000);
    x.random(4);
    HostTensor clean = x;
    const double inf = std::numeric_limits<double>::infinity();
    const std::pair<int64_t, double> bad[] = {
        {0, inf}, {63, -inf}, {64, std::nan("")}, {65, inf}, {4999, std::nan("")}};
    for (auto [i, value] : bad) {
      x.set(0, i, value);
      clean.set(0, i, 0);
    }
    const GradScan result = scan(x.view(), 2);
    EXPECT_EQ(result.nonfinite, 5);
    EXPECT_EQ(result.squares.value(), scan(clean.view(), 2).squares.value());
    EXPECT_EQ(scan(clean.view(), 2).first_bad, 0u);
  }
}

TEST(GradScan, SaysWhereTheFirstNonFiniteElementIs) {
  for (const int64_t at : {0, 63, 64, 130000, 199999}) {
    HostTensor x(DType::f32, 1, 200000);
    x.random(5);
    x.set(0, at, std::nan(""));
    x.set(0, 199999, std::nan(""));
    GradScan result;
    run_on(2, [&](StreamRef s) {
      grad_scan(s, x.view().columns(100000, 100000), &result, 1100000);
      grad_scan(s, x.view().columns(0, 100000), &result, 1000000);
    });
    EXPECT_EQ(~result.first_bad, uint64_t(1000000 + at));
  }
}

TEST(GradScan, HugeAndTinyGradientsNeitherOverflowNorVanish) {
  HostTensor x(DType::f32, 1, 128);
  for (int64_t i = 0; i < 128; ++i) x.set(0, i, i < 64 ? std::numeric_limits<float>::max() : 0);
  const double max = std::numeric_limits<float>::max();
  EXPECT_EQ(scan(x.view(), 1).squares.value(), 64 * max * max);
  for (int64_t i = 0; i < 128; ++i) x.set(0, i, 0x1p-149);
  EXPECT_EQ(scan(x.view(), 1).squares.value(), 128 * 0x1p-298);
}

}  // namespace
}  // namespace zeno
