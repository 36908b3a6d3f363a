// Products of 8-bit floats against the CPU, on values that all formats hold exactly.
#include <cuda_fp8.h>

#include <random>
#include <string>
#include <vector>

#include "tests/cuda/parity.h"
#include "zeno/kernels/cuda/matmul/matmul_fp8.h"
#include "zeno/kernels/cuda/matmul/matmul_plans.h"

namespace zeno::cuda_tests {
namespace {

struct Sizes {
  int64_t m, n, k;
};
constexpr Sizes kSizes[] = {{64, 96, 128}, {1, 16, 16}, {37, 48, 80}, {256, 128, 1040}};

// A matrix of small integers times a power of two: bytes and their scale for the GPU, bf16 for the CPU.
struct Quantised {
  Twin values, bytes, scale;
  bool e5m2 = false;
};

struct Product {
  Quantised a, b;
  Twin c;
  bool accumulate = false;
  Twin bias{}, residual{};

  Matmul on_cpu() const {
    return {.a = a.values.cpu,
            .b = b.values.cpu,
            .c = c.cpu,
            .transpose_b = true,
            .accumulate = accumulate,
            .bias = bias.cpu,
            .residual = residual.cpu};
  }
  cuda::Fp8Matmul on_gpu() const {
    return {.a = a.bytes.gpu.data,
            .b = b.bytes.gpu.data,
            .a_e5m2 = a.e5m2,
            .b_e5m2 = b.e5m2,
            .scale_a = reinterpret_cast<const float*>(a.scale.gpu.data),
            .scale_b = reinterpret_cast<const float*>(b.scale.gpu.data),
            .m = a.bytes.gpu.rows,
            .n = b.bytes.gpu.rows,
            .k = a.bytes.gpu.cols,
            .c = c.gpu,
            .accumulate = accumulate,
            .bias = bias.gpu,
            .residual = residual.gpu};
  }
};

class CudaMatmulFp8 : public Parity {
 protected:
  Quantised quantised(int64_t rows, int64_t cols, uint64_t seed, float scale, bool e5m2 = false) {
    Quantised q{zeros(DType::bf16, rows, cols), zeros(DType::u8, rows, cols), zeros(DType::f32, 1, 1), e5m2};
    std::mt19937_64 engine(seed);
    std::uniform_int_distribution<int> digit(-4, 4);
    for (int64_t i = 0; i < rows * cols; ++i) {
      const float value = float(digit(engine));
      q.values.cpu.as<BF16>()[i] = BF16(value * scale);
      q.bytes.cpu.as<uint8_t>()[i] =
          __nv_cvt_float_to_fp8(value, __NV_SATFINITE, e5m2 ? __NV_E5M2 : __NV_E4M3);
    }
    q.scale.cpu.as<float>()[0] = scale;
    for (const Twin* twin : {&q.values, &q.bytes, &q.scale}) upload(*twin);
    return q;
  }
  Product product(DType output, const Sizes& s, bool a_e5m2 = false, bool b_e5m2 = false) {
    return {.a = quantised(s.m, s.k, 1, 0.25f, a_e5m2),
            .b = quantised(s.n, s.k, 2, 8.0f, b_e5m2),
            .c = poison(output, s.m, s.n)};
  }
  double run(const Product& p) {
    matmul(cpu, p.on_cpu());
    cuda::matmul_fp8(*gpu, p.on_gpu());
    return difference(p.c);
  }
};

TEST_F(CudaMatmulFp8, EveryForm) {
  for (DType output : {DType::bf16, DType::f32}) {
    for (const Sizes& s : kSizes) {
      SCOPED_TRACE(testing::Message() << name_of(output) << " " << s.m << " " << s.n << " " << s.k);
      Product p = product(output, s);
      EXPECT_LT(run(p), tolerance(output));
      p.accumulate = true;
      EXPECT_LT(run(p), tolerance(output));
      p.accumulate = false;
      p.bias = normal(DType::bf16, 1, s.n, 3, 100);
      p.c = poison(output, s.m, s.n);
      EXPECT_LT(run(p), tolerance(output));
      p.residual = normal(output, s.m, s.n, 4, 100);
      p.c = poison(output, s.m, s.n);
      EXPECT_LT(run(p), tolerance(output));
      p.c = p.residual;  // in place
      EXPECT_LT(run(p), tolerance(output));
      p.bias = {};
      p.residual = normal(output, s.m, s.n, 5, 100);
      p.c = poison(output, s.m, s.n);
      EXPECT_LT(run(p), tolerance(output));
    }
  }
}

TEST_F(CudaMatmulFp8, WholeNumbersAreExact) {
  const Product p = product(DType::f32, {64, 96, 128});
  run(p);
  EXPECT_EQ(on_gpu(p.c), on_cpu(p.c));
}

TEST_F(CudaMatmulFp8, EitherOperandMayBeE5M2) {
  for (DType output : {DType::bf16, DType::f32}) {
    for (const Sizes& s : kSizes) {
      SCOPED_TRACE(testing::Message() << name_of(output) << " " << s.m << " " << s.n << " " << s.k);
      EXPECT_LT(run(product(output, s, true, false)), tolerance(output));
      EXPECT_LT(run(product(output, s, false, true)), tolerance(output));
    }
  }
}

TEST_F(CudaMatmulFp8, FormsThatTheLibraryDoesNotFuse) {
  const Sizes s{40, 32, 64};
  for (DType output : {DType::bf16, DType::f32}) {
    Product p = product(output, s);
    p.bias = normal(DType::f32, 1, s.n, 6, 100);
    EXPECT_LT(run(p), tolerance(output));
    p.c = normal(output, s.m, s.n, 7, 100);
    p.residual = normal(output, s.m, s.n, 8, 100);
    p.accumulate = true;
    EXPECT_LT(run(p), tolerance(output));
    p.accumulate = false;
    p.residual = normal(output == DType::f32 ? DType::bf16 : DType::f32, s.m, s.n, 9, 100);
    EXPECT_LT(run(p), tolerance(output));
  }
}

TEST_F(CudaMatmulFp8, OutputMayBeAPartOfAWiderMatrix) {
  Product p = product(DType::bf16, {48, 32, 96});
  const Twin wide = normal(DType::bf16, 48, 80, 10);
  p.c = {wide.cpu.columns(16, 32), wide.gpu.columns(16, 32)};
  run(p);
  EXPECT_LT(difference(wide), tolerance(DType::bf16));
}

TEST_F(CudaMatmulFp8, ScalesAreReadWhenTheProductRuns) {
  Product p = product(DType::f32, {32, 32, 64});
  run(p);
  const std::vector<double> before = on_gpu(p.c);
  p.a.scale.cpu.as<float>()[0] *= 4;
  upload(p.a.scale);
  cuda::matmul_fp8(*gpu, p.on_gpu());
  const std::vector<double> after = on_gpu(p.c);
  for (size_t i = 0; i < before.size(); ++i) ASSERT_EQ(after[i], before[i] * 4) << i;
}

TEST_F(CudaMatmulFp8, EmptySizes) {
  Product p = product(DType::bf16, {5, 16, 0});
  cuda::matmul_fp8(*gpu, p.on_gpu());
  for (double value : on_gpu(p.c)) EXPECT_EQ(value, 0);
  p = product(DType::bf16, {0, 16, 32});
  EXPECT_NO_THROW(cuda::matmul_fp8(*gpu, p.on_gpu()));
  gpu->synchronize();
}

TEST_F(CudaMatmulFp8, RefusesWhatTheTensorCoresDoNotHave) {
  const auto refused = [&](const Product& p) { EXPECT_THROW(cuda::matmul_fp8(*gpu, p.on_gpu()), Error); };
  refused(product(DType::bf16, {16, 16, 16}, true, true));
  refused(product(DType::bf16, {16, 16, 24}));
  refused(product(DType::bf16, {16, 24, 16}));
  refused(product(DType::f16, {16, 16, 16}));
  cuda::Fp8Matmul op = product(DType::bf16, {16, 16, 16}).on_gpu();
  op.scale_b = nullptr;
  EXPECT_THROW(cuda::matmul_fp8(*gpu, op), Error);
}

TEST_F(CudaMatmulFp8, TunedPlansComputeTheSame) {
  const Sizes s{528, 256, 768};
  for (bool e5m2 : {false, true}) {
    Product p = product(DType::bf16, s, e5m2);
    EXPECT_LT(run(p), tolerance(DType::bf16));  // first choice
    {
      const cuda::MatmulTuning tuning;
      cuda::matmul_fp8(*gpu, p.on_gpu());
    }
    p.c = poison(DType::bf16, s.m, s.n);
    EXPECT_LT(run(p), tolerance(DType::bf16));
    const std::vector<double> first = on_gpu(p.c);
    for (int i = 0; i < 3; ++i) {
      cuda::matmul_fp8(*gpu, p.on_gpu());
      EXPECT_EQ(on_gpu(p.c), first);
    }
  }
  const std::string plans = cuda::describe_matmul_plans();
  EXPECT_NE(plans.find("NT 528x256x768 e4m3->bf16"), std::string::npos) << plans;
  EXPECT_NE(plans.find("NT 528x256x768 e5m2*e4m3->bf16"), std::string::npos) << plans;
}

}  // namespace
}  // namespace zeno::cuda_tests
