// Quantisation to 8 bits against a search through all codes, linear layers in fp8 against bf16, and whole
// steps.
#include "zeno/kernels/fp8.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/cuda/parity.h"
#include "tests/support/train_run.h"
#include "zeno/nn/linear.h"

namespace zeno::cuda_tests {
namespace {

using enum Fp8Format;

// A format by its definition: exponent and fraction bits, and the last code that is finite.
struct Format {
  explicit Format(Fp8Format format)
      : fraction_bits(format == e4m3 ? 3 : 2),
        bias(format == e4m3 ? 7 : 15),
        last(format == e4m3 ? 0x7e : 0x7b) {
    for (int code = 0; code <= last; ++code) {
      const int exponent = code >> fraction_bits, fraction = code & ((1 << fraction_bits) - 1);
      const int whole = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
      values.push_back(std::ldexp(double(whole), std::max(exponent, 1) - bias - fraction_bits));
    }
  }

  double largest() const { return values.back(); }
  bool is_nan(uint8_t code) const { return (code & 0x7f) > (last == 0x7e ? 0x7e : 0x7c); }
  // To nearest, ties to even; beyond the last value: the last.
  uint8_t code_of(double x) const {
    const double magnitude = std::abs(x);
    const auto above = std::lower_bound(values.begin(), values.end(), magnitude);
    int code = int(above - values.begin());
    if (code > last) code = last;
    if (code > 0) {
      const double up = values[size_t(code)] - magnitude, down = magnitude - values[size_t(code) - 1];
      if (down < up || (down == up && code % 2 == 1)) --code;
    }
    return uint8_t(code | (std::signbit(x) ? 0x80 : 0));
  }

  int fraction_bits, bias, last;
  std::vector<double> values;  // of the positive codes
};

struct Quantised {
  std::vector<uint8_t> rows, columns;
  float factor = 0, maximum = 0;
};

class CudaFp8 : public Parity {
 protected:
  template <class T>
  std::vector<T> fetch(const Twin& twin) {
    std::vector<T> values(size_t(twin.gpu.count()));
    copy_async(*gpu, reinterpret_cast<std::byte*>(values.data()), twin.gpu.data, twin.gpu.bytes());
    gpu->synchronize();
    return values;
  }

  // Values of every size from subnormal to large.
  Twin values(int64_t rows, int64_t cols, uint64_t seed, double largest) {
    Twin x = zeros(DType::bf16, rows, cols);
    std::mt19937_64 engine(seed);
    std::uniform_real_distribution<double> value(-1, 1), size(-24, 0);
    for (int64_t i = 0; i < rows * cols; ++i) {
      x.cpu.as<BF16>()[i] = BF16(float(largest * value(engine) * std::exp2(size(engine))));
    }
    x.cpu.as<BF16>()[rows * cols - 1] = BF16(float(largest));
    upload(x);
    return x;
  }

  Quantised quantise(const Twin& x, Fp8Format format, bool rows, bool columns) {
    const Tensor& t = x.gpu;
    const Twin by_rows = poison(DType::u8, t.rows, t.cols), by_columns = poison(DType::u8, t.cols, t.rows),
               scale = poison(DType::f32, 1, 2);
    fp8_quantise(*gpu, {.x = t,
                        .format = format,
                        .rows = rows ? by_rows.gpu : Tensor{},
                        .columns = columns ? by_columns.gpu : Tensor{},
                        .scale = scale.gpu});
    const std::vector<float> s = fetch<float>(scale);
    return {fetch<uint8_t>(by_rows), fetch<uint8_t>(by_columns), s[0], s[1]};
  }

  void check(const Twin& x, Fp8Format kind, bool rows, bool columns) {
    SCOPED_TRACE(testing::Message() << (kind == e4m3 ? "e4m3 " : "e5m2 ") << x.cpu.rows << " x " << x.cpu.cols
                                    << " rows " << rows << " columns " << columns);
    const Format format(kind);
    const Quantised q = quantise(x, kind, rows, columns);
    const int64_t height = x.cpu.rows, width = x.cpu.cols;
    double largest = 0;
    for (int64_t i = 0; i < height * width; ++i) {
      largest = std::max(largest, std::abs(double(float(x.cpu.as<BF16>()[i]))));
    }
    ASSERT_EQ(q.maximum, float(largest));
    // The smallest power of two that keeps the largest value in range.
    int exponent = 0;
    ASSERT_EQ(std::frexp(q.factor, &exponent), 0.5f);
    EXPECT_LE(largest / q.factor, format.largest());
    EXPECT_GT(2 * largest / q.factor, format.largest());
    int64_t wrong = 0;
    for (int64_t r = 0; r < height; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        const uint8_t code = format.code_of(double(float(x.cpu.row<BF16>(r)[c])) / q.factor);
        wrong += q.rows[size_t(r * width + c)] != (rows ? code : 0xff);
        wrong += q.columns[size_t(c * height + r)] != (columns ? code : 0xff);
      }
    }
    EXPECT_EQ(wrong, 0);
  }

  Twin fp8_space(int64_t rows, int64_t in, int64_t out) {
    nn::Layout count;
    nn::take_fp8(count, rows, in, out);
    return workspace(count.peak());
  }
};

// Parts of tiles in both directions, and more than one block of each kernel.
TEST_F(CudaFp8, QuantisesLikeASearchThroughAllCodes) {
  constexpr int64_t kSizes[][2] = {{16, 16},   {16, 144},   {48, 80},    {128, 128},
                                   {144, 272}, {400, 1040}, {1024, 1536}};
  for (Fp8Format format : {e4m3, e5m2}) {
    uint64_t seed = 1;
    for (const auto& [rows, cols] : kSizes) {
      const Twin x = values(rows, cols, seed, std::exp2(double(seed) * 3 - 10));
      ++seed;
      check(x, format, true, false);
      check(x, format, false, true);
      check(x, format, true, true);
    }
  }
}

TEST_F(CudaFp8, TheLargestValueDecidesTheScale) {
  const double next = 1.7578125;  // the bf16 after 1.75, which is the fraction of both largest values
  for (double largest : {1.0, 1.75, next, 448.0, 57344.0, 449.0, 3e38, 1e-30, 0.1}) {
    for (Fp8Format format : {e4m3, e5m2}) check(values(32, 48, 7, largest), format, true, true);
  }
  const Quantised q = quantise(values(16, 16, 8, 1.75), e4m3, true, true);
  EXPECT_EQ(q.factor, 1.0f / 256);
  EXPECT_EQ(q.rows.back(), 0x7e);
  EXPECT_EQ(quantise(values(16, 16, 8, next), e4m3, true, true).factor, 1.0f / 128);
}

TEST_F(CudaFp8, ZerosAndTheTiniestValues) {
  for (Fp8Format format : {e4m3, e5m2}) {
    const Quantised zero = quantise(zeros(DType::bf16, 32, 16), format, true, true);
    EXPECT_TRUE(std::isfinite(zero.factor));
    EXPECT_EQ(zero.rows, std::vector<uint8_t>(32 * 16, 0));
    EXPECT_EQ(zero.columns, std::vector<uint8_t>(32 * 16, 0));
    Twin x = zeros(DType::bf16, 32, 16);
    x.cpu.as<BF16>()[5].bits = 1;  // the smallest subnormal
    upload(x);
    const Quantised tiny = quantise(x, format, true, true);
    EXPECT_TRUE(std::isnormal(tiny.factor) && tiny.factor > 0);
    EXPECT_EQ(tiny.rows[5], Format(format).code_of(double(float(x.cpu.as<BF16>()[5])) / tiny.factor));
  }
}

// One value is enough to spoil every product.
TEST_F(CudaFp8, NonFiniteValuesSpoilTheFactor) {
  const float inf = std::numeric_limits<float>::infinity();
  for (float bad : {inf, -inf, std::nanf("")}) {
    for (Fp8Format kind : {e4m3, e5m2}) {
      Twin x = values(144, 80, 9, 2);
      x.cpu.row<BF16>(37)[21] = BF16(bad);
      upload(x);
      const Quantised q = quantise(x, kind, true, true);
      EXPECT_TRUE(std::isnan(q.factor)) << bad;
      if (!std::isnan(bad)) continue;
      EXPECT_TRUE(Format(kind).is_nan(q.rows[37 * 80 + 21]));
      EXPECT_TRUE(Format(kind).is_nan(q.columns[21 * 144 + 37]));
    }
  }
}

// Rounding to 3 fraction bits is about 2.6 % of a value, to 2 bits twice that; sums keep the ratio.
constexpr double kForward = 0.05, kBackward = 0.08, kVisible = 1e-3;

TEST_F(CudaFp8, LinearForwardIsCloseToBf16) {
  constexpr int64_t kRows = 144, kIn = 272, kOut = 208;
  nn::LinearForward a{}, b{};
  const Twin x = normal(DType::bf16, kRows, kIn, 1), weight = normal(DType::bf16, kOut, kIn, 2, 0.02),
             bias = normal(DType::bf16, 1, kOut, 3, 0.1), residual = normal(DType::bf16, kRows, kOut, 4, 0.1),
             y = poison(DType::bf16, kRows, kOut), space = fp8_space(kRows, kIn, kOut);
  for (bool fused : {false, true}) {
    a = {.x = x.cpu, .weight = weight.cpu, .bias = {}, .residual = {}, .y = y.cpu, .fp8 = {}};
    b = {.x = x.gpu, .weight = weight.gpu, .bias = {}, .residual = {}, .y = y.gpu, .fp8 = space.gpu};
    if (fused) a.bias = bias.cpu, a.residual = residual.cpu, b.bias = bias.gpu, b.residual = residual.gpu;
    nn::linear_forward(cpu, a);
    nn::linear_forward(*gpu, b);
    EXPECT_LT(difference(y), kForward);
    EXPECT_GT(difference(y), kVisible);
    const std::vector<double> first = on_gpu(y);
    nn::linear_forward(*gpu, b);
    EXPECT_EQ(on_gpu(y), first);
  }
}

TEST_F(CudaFp8, LinearBackwardIsCloseToBf16) {
  constexpr int64_t kRows = 144, kIn = 272, kOut = 208;
  const Twin weight = normal(DType::bf16, kOut, kIn, 2, 0.02), dy = normal(DType::bf16, kRows, kOut, 3, 1e-4),
             space = fp8_space(kRows, kIn, kOut);
  for (DType grad : {DType::f32, DType::bf16}) {
    for (bool fresh : {true, false}) {
      const Twin x = normal(DType::bf16, kRows, kIn, 1), dbias = normal(grad, 1, kOut, 4, 1e-3),
                 dweight = normal(grad, kOut, kIn, 5, 1e-3);
      const auto on = [&](Tensor Twin::*side) {
        return nn::LinearBackward{.x = x.*side,
                                  .dy = dy.*side,
                                  .weight = weight.*side,
                                  .dx = x.*side,  // in the place of x
                                  .dweight = dweight.*side,
                                  .dbias = dbias.*side,
                                  .fresh = fresh,
                                  .fp8 = {}};
      };
      nn::LinearBackward fp8 = on(&Twin::gpu);
      fp8.fp8 = space.gpu;
      nn::linear_backward(cpu, on(&Twin::cpu));
      nn::linear_backward(*gpu, fp8);
      for (const Twin& result : {x, dweight}) {
        EXPECT_LT(difference(result), kBackward);
        EXPECT_GT(difference(result), kVisible);
      }
      EXPECT_LT(difference(dbias), tolerance(grad));
    }
  }
}

TEST_F(CudaFp8, LinearBackwardOfWhatIsWanted) {
  constexpr int64_t kRows = 32, kIn = 48, kOut = 64;
  const Twin x = normal(DType::bf16, kRows, kIn, 1), weight = normal(DType::bf16, kOut, kIn, 2),
             dy = normal(DType::bf16, kRows, kOut, 3), space = fp8_space(kRows, kIn, kOut);
  for (bool frozen : {true, false}) {
    const Twin dx = poison(DType::bf16, kRows, kIn), dweight = poison(DType::f32, kOut, kIn);
    const auto on = [&](Tensor Twin::*side) {
      return nn::LinearBackward{.x = frozen ? Tensor{} : x.*side,
                                .dy = dy.*side,
                                .weight = weight.*side,
                                .dx = frozen ? dx.*side : Tensor{},
                                .dweight = frozen ? Tensor{} : dweight.*side,
                                .dbias = {},
                                .fresh = true,
                                .fp8 = {}};
    };
    nn::LinearBackward fp8 = on(&Twin::gpu);
    fp8.fp8 = space.gpu;
    nn::linear_backward(cpu, on(&Twin::cpu));
    nn::linear_backward(*gpu, fp8);
    EXPECT_LT(difference(frozen ? dx : dweight), kBackward);
  }
}

class CudaFp8Engine : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(Device::Kind::cuda) == 0) GTEST_SKIP() << "no GPU";
  }
  static test::RunSpec spec(test::Family family) {
    test::RunSpec spec;
    spec.family = family;
    spec.shape = {.hidden = 64, .heads = 4, .blocks = 3, .vocab = 160, .max_seq = 128};
    spec.batch = {2, 80};
    spec.device = {Device::Kind::cuda, 0};
    spec.policy.compute = DType::bf16;
    spec.policy.deterministic = true;
    spec.lr = 1e-3f;
    spec.steps = 6;
    return spec;
  }
};

TEST_F(CudaFp8Engine, LossesFollowBf16) {
  for (test::Family family : {test::Family::gpt2, test::Family::llama, test::Family::qwen3}) {
    test::RunSpec bf16 = spec(family), fp8 = bf16;
    fp8.policy.fp8 = true;
    const test::RunResult expected = run_threads(bf16), ours = run_threads(fp8);
    EXPECT_NE(ours.losses, expected.losses);
    for (size_t i = 0; i < ours.losses.size(); ++i) {
      EXPECT_NEAR(ours.losses[i], expected.losses[i], 0.02 * expected.losses[i])
          << int(family) << " step " << i;
    }
    EXPECT_EQ(ours.booked, ours.peak);
  }
}

TEST_F(CudaFp8Engine, RecomputeShardingAndRepetitionGiveTheSameBits) {
  for (test::Family family : {test::Family::llama, test::Family::qwen3}) {
    for (int world : {1, 2}) {
      test::RunSpec base = spec(family);
      base.policy.fp8 = true;
      base.world = world;
      const test::RunResult reference = run_threads(base);
      EXPECT_EQ(run_threads(base), reference);
      for (nn::Recompute recompute : {nn::Recompute::selective, nn::Recompute::full}) {
        test::RunSpec other = base;
        other.policy.recompute = recompute;
        apply_stage(other.policy, 3);
        const test::RunResult result = run_threads(other);
        EXPECT_EQ(result, reference) << int(family) << " world " << world << " recompute " << int(recompute);
        EXPECT_EQ(result.booked, result.peak);
      }
    }
  }
}

}  // namespace
}  // namespace zeno::cuda_tests
