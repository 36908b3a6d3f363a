#include <cstring>
#include <string>
#include <vector>

#include "tests/cuda/parity.h"
#include "tests/support/temp_dir.h"
#include "zeno/base/file.h"
#include "zeno/device/cuda/runtime.h"
#include "zeno/kernels/cuda/fill_random.h"
#include "zeno/kernels/cuda/matmul/matmul_cache.h"
#include "zeno/kernels/cuda/matmul/matmul_plan_file.h"
#include "zeno/kernels/cuda/matmul/matmul_plans.h"

namespace zeno::cuda_tests {
namespace {

using cuda::MatmulPlan;
using cuda::PlanSet;

struct Sizes {
  int64_t m, n, k;
};
constexpr Sizes kSizes[] = {{64, 96, 128}, {1, 17, 33}, {37, 17, 33}, {130, 24, 1}, {256, 128, 520}};
constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

// A Matmul on both devices.
struct Product {
  Twin a, b, c;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  Twin bias{}, residual{};

  Matmul on(Tensor Twin::*side) const {
    return {.a = a.*side,
            .b = b.*side,
            .c = c.*side,
            .transpose_a = transpose_a,
            .transpose_b = transpose_b,
            .accumulate = accumulate,
            .bias = bias.*side,
            .residual = residual.*side};
  }
};

Twin columns(const Twin& twin, int64_t begin, int64_t width) {
  return {twin.cpu.columns(begin, width), twin.gpu.columns(begin, width)};
}

class CudaMatmul : public Parity {
 protected:
  double run(const Product& p) { return run(p, p.c); }
  // ... and compares `result`, a matrix that C is a part of.
  double run(const Product& p, const Twin& result) {
    matmul(cpu, p.on(&Twin::cpu));
    matmul(*gpu, p.on(&Twin::gpu));
    return difference(result);
  }
  // Sums of up to 520 products of fp32 in two orders.
  static double limit(DType dtype) { return dtype == DType::f32 ? 5e-6 : tolerance(dtype); }

  // Y = X·Wᵀ
  Product forward(DType dtype, const Sizes& s) {
    return {.a = normal(dtype, s.m, s.k, 1),
            .b = normal(dtype, s.n, s.k, 2),
            .c = poison(dtype, s.m, s.n),
            .transpose_b = true};
  }
  std::vector<std::byte> bytes_of(const Twin& twin) {
    std::vector<std::byte> bytes(twin.gpu.bytes());
    copy_async(*gpu, bytes.data(), twin.gpu.data, bytes.size());
    gpu->synchronize();
    return bytes;
  }
};

TEST_F(CudaMatmul, Forward) {
  for (DType dtype : kTypes) {
    for (const Sizes& s : kSizes) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << " " << s.m << " " << s.n << " " << s.k);
      Product p = forward(dtype, s);
      EXPECT_LT(run(p), limit(dtype));
      p.bias = normal(dtype, 1, s.n, 3, 10);
      p.c = poison(dtype, s.m, s.n);
      EXPECT_LT(run(p), limit(dtype));
      p.residual = normal(dtype, s.m, s.n, 4, 10);
      p.c = poison(dtype, s.m, s.n);
      EXPECT_LT(run(p), limit(dtype));
      p.c = p.residual;  // in place
      EXPECT_LT(run(p), limit(dtype));
      p.bias = {};
      EXPECT_LT(run(p), limit(dtype));
      p.c = poison(dtype, s.m, s.n);
      EXPECT_LT(run(p), limit(dtype));
    }
  }
}

TEST_F(CudaMatmul, GradientOfInput) {
  for (DType dtype : kTypes) {
    for (const Sizes& s : kSizes) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << " " << s.m << " " << s.n << " " << s.k);
      EXPECT_LT(run({.a = normal(dtype, s.m, s.k, 5),
                     .b = normal(dtype, s.k, s.n, 6),
                     .c = poison(dtype, s.m, s.n)}),
                limit(dtype));
    }
  }
}

TEST_F(CudaMatmul, GradientOfWeightAddsToWhatIsThere) {
  for (DType dtype : kTypes) {
    for (DType output : {dtype, DType::f32}) {
      for (const Sizes& s : kSizes) {
        SCOPED_TRACE(testing::Message() << name_of(dtype) << " into " << name_of(output) << " " << s.m << " "
                                        << s.n << " " << s.k);
        Product p{.a = normal(dtype, s.k, s.m, 7),
                  .b = normal(dtype, s.k, s.n, 8),
                  .c = normal(output, s.m, s.n, 9, 10),
                  .transpose_a = true,
                  .accumulate = true};
        EXPECT_LT(run(p), limit(output));
        EXPECT_LT(run(p), limit(output));
      }
    }
  }
}

TEST_F(CudaMatmul, BothTransposed) {
  EXPECT_LT(run({.a = normal(DType::bf16, 48, 40, 10),
                 .b = normal(DType::bf16, 24, 48, 11),
                 .c = poison(DType::f32, 40, 24),
                 .transpose_a = true,
                 .transpose_b = true}),
            limit(DType::f32));
}

TEST_F(CudaMatmul, ViewsOfPackedMatrices) {
  for (DType dtype : kTypes) {
    // Offset 1 leaves addresses aligned to one element only, stride 99 no row aligned alike.
    for (int64_t offset : {8, 1}) {
      const int64_t m = 64, n = 32, k = 48, wide = offset == 1 ? 99 : 96;
      SCOPED_TRACE(testing::Message() << name_of(dtype) << " offset " << offset);
      const Twin a = normal(dtype, m, wide, 12), b = normal(dtype, n, wide, 13),
                 c = normal(dtype, m, wide, 14), residual = normal(dtype, m, wide, 15),
                 bias = normal(dtype, 1, wide, 16);
      const Product p{.a = columns(a, offset, k),
                      .b = columns(b, offset, k),
                      .c = columns(c, offset, n),
                      .transpose_b = true,
                      .bias = columns(bias, offset, n),
                      .residual = columns(residual, offset, n)};
      EXPECT_LT(run(p, c), limit(dtype));
    }
  }
}

TEST_F(CudaMatmul, FormsThatTheLibraryDoesNotFuse) {
  const Sizes s{40, 24, 64};
  for (DType dtype : {DType::bf16, DType::f16}) {
    Product p = forward(dtype, s);
    p.bias = normal(DType::f32, 1, s.n, 17, 10);  // wider than C
    EXPECT_LT(run(p), limit(dtype));
    p.c = poison(DType::f32, s.m, s.n);
    p.bias = normal(dtype, 1, s.n, 18, 10);  // narrower than C
    EXPECT_LT(run(p), limit(DType::f32));
    p.c = normal(dtype, s.m, s.n, 19, 10);
    p.residual = normal(dtype, s.m, s.n, 20, 10);
    p.accumulate = true;
    EXPECT_LT(run(p), limit(dtype));
    p.residual = p.c;
    EXPECT_LT(run(p), limit(dtype));
    p.residual = normal(DType::f32, s.m, s.n, 21, 10);
    p.accumulate = false;
    EXPECT_LT(run(p), limit(dtype));
  }
}

TEST_F(CudaMatmul, EmptySizes) {
  for (DType dtype : kTypes) {
    Product p{
        .a = zeros(dtype, 5, 0), .b = zeros(dtype, 7, 0), .c = poison(dtype, 5, 7), .transpose_b = true};
    run(p);
    for (double value : on_gpu(p.c)) EXPECT_EQ(value, 0);
    p.bias = normal(dtype, 1, 7, 22);
    EXPECT_EQ(run(p), 0);
    p.residual = normal(dtype, 5, 7, 23);
    EXPECT_LT(run(p), limit(dtype));
    p.bias = p.residual = {};
    p.accumulate = true;
    const std::vector<double> before = on_gpu(p.c);
    run(p);
    EXPECT_EQ(on_gpu(p.c), before);
  }
  const Product none{
      .a = zeros(DType::bf16, 0, 8), .b = zeros(DType::bf16, 8, 8), .c = zeros(DType::bf16, 0, 8)};
  EXPECT_NO_THROW(matmul(*gpu, none.on(&Twin::gpu)));
  gpu->synchronize();
}

TEST_F(CudaMatmul, RefusesMixedOperands) {
  Product p = forward(DType::bf16, {8, 8, 8});
  p.b = normal(DType::f16, 8, 8, 24);
  EXPECT_THROW(matmul(*gpu, p.on(&Twin::gpu)), Error);
  p = forward(DType::f32, {8, 8, 8});
  p.c = poison(DType::bf16, 8, 8);
  EXPECT_THROW(matmul(*gpu, p.on(&Twin::gpu)), Error);
  p = forward(DType::f32, {8, 8, 8});
  p.c = poison(DType::f32, 8, 9);
  EXPECT_THROW(matmul(*gpu, p.on(&Twin::gpu)), Error);
}

TEST_F(CudaMatmul, TunedPlansComputeTheSame) {
  const Sizes s{768, 384, 512};
  for (DType dtype : kTypes) {
    SCOPED_TRACE(name_of(dtype));
    Product p = forward(dtype, s);
    p.bias = normal(dtype, 1, s.n, 25, 10);
    p.residual = normal(dtype, s.m, s.n, 26, 10);
    Product dw{.a = normal(dtype, s.k, s.m, 27),
               .b = normal(dtype, s.k, s.n, 28),
               .c = zeros(DType::f32, s.m, s.n),
               .transpose_a = true,
               .accumulate = true};
    EXPECT_LT(run(p), limit(dtype));  // first choice
    {
      const cuda::MatmulTuning tuning;
      matmul(*gpu, p.on(&Twin::gpu));
      matmul(*gpu, dw.on(&Twin::gpu));
    }
    p.c = poison(dtype, s.m, s.n);
    EXPECT_LT(run(p), limit(dtype));
    dw.c = normal(DType::f32, s.m, s.n, 29, 10);
    EXPECT_LT(run(dw), limit(DType::f32));
    const std::vector<std::byte> first = bytes_of(p.c);
    for (int i = 0; i < 5; ++i) {
      matmul(*gpu, p.on(&Twin::gpu));
      EXPECT_EQ(bytes_of(p.c), first);
    }
  }
  EXPECT_NE(cuda::describe_matmul_plans().find("768x384x512 bf16->fp32 +C"), std::string::npos)
      << cuda::describe_matmul_plans();
}

// Gradients that write first and add later are two products, each with a plan of its own.
TEST_F(CudaMatmul, WritingAndAddingAreTunedApart) {
  const Sizes s{264, 200, 776};
  Product p{.a = normal(DType::bf16, s.k, s.m, 40),
            .b = normal(DType::bf16, s.k, s.n, 41),
            .c = poison(DType::f32, s.m, s.n),
            .transpose_a = true};
  {
    const cuda::MatmulTuning tuning;
    matmul(*gpu, p.on(&Twin::gpu));
    p.accumulate = true;
    matmul(*gpu, p.on(&Twin::gpu));
  }
  int writing = 0, adding = 0;
  for (const auto& [name, list] : cuda::all_plans()) {
    for (const auto& [key, plan] : list) {
      if (key.m != s.m || key.n != s.n || key.k != s.k || plan.origin != MatmulPlan::Origin::tuned) continue;
      EXPECT_GT(plan.candidates, 0);
      EXPECT_GT(plan.burst, 0);
      writing += key.addend == cuda::Addend::none;
      adding += key.addend == cuda::Addend::output;
    }
  }
  EXPECT_EQ(writing, 1);
  EXPECT_EQ(adding, 1);
  p.c = poison(DType::f32, s.m, s.n);
  p.accumulate = false;
  EXPECT_LT(run(p), limit(DType::f32));
  p.accumulate = true;
  EXPECT_LT(run(p), limit(DType::f32));
}

// Large enough for the second stage. The first choice of the library is the reference.
TEST_F(CudaMatmul, SustainedTimingFindsAPlan) {
  constexpr int64_t kSize = 4096;
  const Twin a = poison(DType::bf16, kSize, kSize), b = poison(DType::bf16, kSize, kSize),
             first = poison(DType::bf16, kSize, kSize), tuned = poison(DType::bf16, kSize, kSize);
  for (const Twin* t : {&a, &b}) cuda::fill_random(*gpu, t->gpu.data, t->gpu.bytes());
  Product p{.a = a, .b = b, .c = first, .transpose_b = true};
  matmul(*gpu, p.on(&Twin::gpu));
  p.c = tuned;
  {
    const cuda::MatmulTuning tuning;
    matmul(*gpu, p.on(&Twin::gpu));
  }
  const std::vector<double> x = on_gpu(first), y = on_gpu(tuned);
  double error = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) error += (x[i] - y[i]) * (x[i] - y[i]), norm += x[i] * x[i];
  EXPECT_GT(norm, 0);
  EXPECT_LE(error, norm * tolerance(DType::bf16) * tolerance(DType::bf16));
  int found = 0;
  for (const auto& [name, list] : cuda::all_plans()) {
    for (const auto& [key, plan] : list) {
      if (key.m != kSize || key.k != kSize) continue;
      ++found;
      EXPECT_EQ(int(plan.origin), int(MatmulPlan::Origin::tuned));
      EXPECT_GT(plan.candidates, 1);
      EXPECT_GT(plan.sustained, 0);
    }
  }
  EXPECT_EQ(found, 1);
}

// A plan goes to a file and comes back into an empty table; the library takes it.
TEST_F(CudaMatmul, StoredPlansAreUsed) {
  const test::TempDir folder;
  const auto path = folder.path() / "plans";
  Product p = forward(DType::bf16, {384, 128, 264});
  {
    const cuda::MatmulTuning tuning;
    matmul(*gpu, p.on(&Twin::gpu));
  }
  cuda::save_matmul_plans(path);
  PlanSet plans = cuda::parse_plan_file(read_file(path));
  int found = 0;
  constexpr int kMark = 12345;
  for (auto& [name, list] : plans) {
    std::erase_if(list, [](const auto& entry) { return entry.first.k != 264; });
    for (auto& [key, plan] : list) {
      ++found;
      plan.candidates = kMark;
      cuda::plan_table(name).drop(key);
    }
  }
  ASSERT_EQ(found, 1);
  replace_file(path, cuda::format_plan_file(plans));
  cuda::load_matmul_plans(path);
  p.c = poison(DType::bf16, 384, 128);
  EXPECT_LT(run(p), limit(DType::bf16));
  for (const auto& [name, list] : plans) {
    for (const auto& [key, plan] : list) {
      const auto used = cuda::plan_table(name).find(key);
      ASSERT_TRUE(used);
      EXPECT_EQ(used->candidates, kMark);
      EXPECT_EQ(int(used->origin), int(MatmulPlan::Origin::tuned));
    }
  }
}

TEST_F(CudaMatmul, CanBeCaptured) {
  Product p = forward(DType::bf16, {128, 64, 96});
  p.bias = normal(DType::bf16, 1, 64, 30);
  EXPECT_LT(run(p), limit(DType::bf16));
  p.c = poison(DType::bf16, 128, 64);
  const Twin dbias = normal(DType::f32, 1, 64, 31), dy = normal(DType::bf16, 128, 64, 32);
  bias_backward(cpu, dy.cpu, dbias.cpu);  // a first call may load the kernel
  bias_backward(*gpu, dy.gpu, dbias.gpu);
  cudaStream_t stream = cuda::native(*gpu);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t program = nullptr;
  const cuda::MatmulTuning tuning;  // must not disturb a capture
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  matmul(*gpu, p.on(&Twin::gpu));
  bias_backward(*gpu, dy.gpu, dbias.gpu);
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&program, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(program, stream), cudaSuccess);
  gpu->synchronize();
  matmul(cpu, p.on(&Twin::cpu));
  bias_backward(cpu, dy.cpu, dbias.cpu);
  EXPECT_LT(difference(p.c), limit(DType::bf16));
  EXPECT_LT(difference(dbias), tolerance(DType::f32));
  cudaGraphExecDestroy(program);
  cudaGraphDestroy(graph);
}

class CudaBiasBackward : public Parity {};

TEST_F(CudaBiasBackward, SumsColumns) {
  for (DType dtype : kTypes) {
    for (DType output : kTypes) {
      for (auto [rows, cols] :
           {std::pair<int64_t, int64_t>{1, 1}, {7, 17}, {128, 256}, {1000, 264}, {2100, 40}}) {
        SCOPED_TRACE(testing::Message()
                     << name_of(dtype) << " " << name_of(output) << " " << rows << " " << cols);
        const Twin dy = normal(dtype, rows, cols, 33, 1, 0.5), dbias = normal(output, 1, cols, 34, 10);
        bias_backward(cpu, dy.cpu, dbias.cpu);
        bias_backward(*gpu, dy.gpu, dbias.gpu);
        EXPECT_LT(difference(dbias), tolerance(output));
      }
    }
  }
}

TEST_F(CudaBiasBackward, WidthOfLoadsDoesNotChangeBits) {
  const Twin dy = normal(DType::bf16, 700, 64, 35), packed = normal(DType::bf16, 700, 67, 36);
  for (int64_t r = 0; r < 700; ++r)
    std::memcpy(packed.cpu.row<BF16>(r) + 3, dy.cpu.row<BF16>(r), 64 * sizeof(BF16));
  upload(packed);
  const Twin wide = zeros(DType::f32, 1, 64), narrow = zeros(DType::f32, 1, 64),
             none = zeros(DType::bf16, 0, 64);
  bias_backward(*gpu, dy.gpu, wide.gpu);
  bias_backward(*gpu, packed.gpu.columns(3, 64), narrow.gpu);
  bias_backward(*gpu, none.gpu, narrow.gpu);
  EXPECT_EQ(on_gpu(wide), on_gpu(narrow));
}

}  // namespace
}  // namespace zeno::cuda_tests
