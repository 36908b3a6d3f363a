#include "zeno/kernels/norm.h"

#include <string>

#include "tests/cuda/parity.h"

namespace zeno::cuda_tests {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

struct Shape {
  int64_t rows, width;
  int64_t padding = 0;  // columns between rows
};
// Warp teams, one warp, blocks with and without registers for the next vector, and what fits none of them;
// more vectors than blocks, too.
constexpr Shape kShapes[] = {{9000, 64}, {37, 128, 16}, {5, 96},        {7, 100},   {540, 2048},
                             {33, 768},  {3, 4096},     {459, 4608, 8}, {5, 8192},  {2, 16384},
                             {2, 16392}, {4, 37},       {1, 8},         {2, 20001}, {9, 2048, 3}};

// The largest ones for one dtype only: the CPU has to follow.
bool too_large(const Shape& s, DType dtype) { return dtype != DType::bf16 && s.rows * s.width > 1000000; }

class CudaNorm : public Parity {
 protected:
  Twin matrix(DType dtype, const Shape& s, uint64_t seed, double mean = 0) {
    return normal(dtype, s.rows, s.width, seed, 1, mean, s.width + s.padding);
  }
  // Sums over rows of products, in two orders.
  static double sum_limit(DType dtype) { return dtype == DType::f32 ? 1e-5 : tolerance(dtype); }
};

struct Forward {
  Twin x, residual, sum, weight, bias, y, rstd, mean;

  NormForward on(Tensor Twin::*side) const {
    return {.x = x.*side,
            .residual = residual.*side,
            .sum = sum.*side,
            .weight = weight.*side,
            .bias = bias.*side,
            .y = y.*side,
            .rstd = rstd.*side,
            .mean = mean.*side};
  }
};

struct Backward {
  Twin x, weight, rstd, mean, dy, dresidual, dx, dweight, dbias;

  NormBackward on(Tensor Twin::*side) const {
    return {.x = x.*side,
            .weight = weight.*side,
            .rstd = rstd.*side,
            .mean = mean.*side,
            .dy = dy.*side,
            .dresidual = dresidual.*side,
            .dx = dx.*side,
            .dweight = dweight.*side,
            .dbias = dbias.*side};
  }
};

std::string describe(const Shape& s, DType dtype, bool centered) {
  return std::string(name_of(dtype)) + " " + std::to_string(s.rows) + " x " + std::to_string(s.width) +
         (centered ? " layernorm" : " rmsnorm");
}

TEST_F(CudaNorm, ForwardIsTheCpuFunction) {
  for (DType dtype : kTypes) {
    for (const Shape& s : kShapes) {
      if (too_large(s, dtype)) continue;
      for (bool centered : {false, true}) {
        // A mean that matters, and weights in either dtype.
        const DType weights = s.rows % 2 ? dtype : DType::f32;
        Forward op{.x = matrix(dtype, s, 1, 0.5),
                   .weight = normal(weights, 1, s.width, 2, 0.2, 1),
                   .bias = centered && s.rows != 5 ? normal(weights, 1, s.width, 3) : Twin{},
                   .y = poison(dtype, s.rows, s.width),
                   .rstd = poison(DType::f32, s.rows, 1),
                   .mean = centered ? poison(DType::f32, s.rows, 1) : Twin{}};
        if (s.rows % 3 == 0) {
          op.residual = matrix(dtype, s, 4);
          op.sum = s.rows == 3 ? op.x : poison(dtype, s.rows, s.width);
        }
        if (centered) {
          layernorm_forward(cpu, op.on(&Twin::cpu));
          layernorm_forward(*gpu, op.on(&Twin::gpu));
        } else {
          rmsnorm_forward(cpu, op.on(&Twin::cpu));
          rmsnorm_forward(*gpu, op.on(&Twin::gpu));
        }
        SCOPED_TRACE(describe(s, dtype, centered));
        EXPECT_LE(difference(op.y), tolerance(dtype));
        EXPECT_LE(difference(op.rstd), 2e-6);
        if (op.mean) {
          EXPECT_LE(difference(op.mean), 2e-6);
        }
        if (op.sum) {
          EXPECT_EQ(difference(op.sum), 0);
        }
      }
    }
  }
}

TEST_F(CudaNorm, ForwardMayWriteOverItsInput) {
  for (int64_t width : {2048, 100}) {
    const Twin x = normal(DType::bf16, 6, width, 1);
    const Forward op{
        .x = x, .weight = normal(DType::bf16, 1, width, 2), .y = x, .rstd = poison(DType::f32, 6, 1)};
    rmsnorm_forward(cpu, op.on(&Twin::cpu));
    rmsnorm_forward(*gpu, op.on(&Twin::gpu));
    EXPECT_LE(difference(x), tolerance(DType::bf16)) << width;
  }
}

TEST_F(CudaNorm, BackwardIsTheCpuFunction) {
  for (DType dtype : kTypes) {
    for (const Shape& s : kShapes) {
      if (too_large(s, dtype)) continue;
      for (bool centered : {false, true}) {
        const DType gradients = s.rows % 2 ? DType::f32 : dtype;
        Backward op{.x = matrix(dtype, s, 1, centered ? 0.5 : 0),
                    .weight = normal(s.rows % 2 ? dtype : DType::f32, 1, s.width, 2, 0.2, 1),
                    .rstd = normal(DType::f32, s.rows, 1, 3, 0.05, 1),
                    .mean = centered ? normal(DType::f32, s.rows, 1, 4, 0.05, 0.5) : Twin{},
                    .dy = matrix(dtype, s, 5),
                    .dresidual = s.rows % 3 == 0 ? matrix(dtype, s, 6) : Twin{},
                    .dx = poison(dtype, s.rows, s.width),
                    .dweight = normal(gradients, 1, s.width, 7),
                    .dbias = centered && s.rows != 5 ? normal(gradients, 1, s.width, 8) : Twin{}};
        if (s.rows == 37) op.dx = op.dy;
        if (s.rows == 459) op.dx = op.dresidual;
        if (s.rows == 4) op.dweight = Twin{};
        if (centered) {
          layernorm_backward(cpu, op.on(&Twin::cpu));
          layernorm_backward(*gpu, op.on(&Twin::gpu));
        } else {
          rmsnorm_backward(cpu, op.on(&Twin::cpu));
          rmsnorm_backward(*gpu, op.on(&Twin::gpu));
        }
        SCOPED_TRACE(describe(s, dtype, centered));
        EXPECT_LE(difference(op.dx), tolerance(dtype));
        if (op.dweight) {
          EXPECT_LE(difference(op.dweight), sum_limit(gradients));
        }
        if (op.dbias) {
          EXPECT_LE(difference(op.dbias), sum_limit(gradients));
        }
      }
    }
  }
}

TEST_F(CudaNorm, BackwardGivesTheSameBitsEveryTime) {
  const Shape s{40000, 64};
  const Backward first{.x = matrix(DType::bf16, s, 1),
                       .weight = normal(DType::bf16, 1, s.width, 2),
                       .rstd = normal(DType::f32, s.rows, 1, 3, 0.05, 1),
                       .dy = matrix(DType::bf16, s, 5),
                       .dx = poison(DType::bf16, s.rows, s.width),
                       .dweight = zeros(DType::f32, 1, s.width)};
  rmsnorm_backward(*gpu, first.on(&Twin::gpu));
  for (int i = 0; i < 5; ++i) {
    Backward again = first;
    again.dweight = zeros(DType::f32, 1, s.width);
    rmsnorm_backward(*gpu, again.on(&Twin::gpu));
    EXPECT_EQ(on_gpu(again.dweight), on_gpu(first.dweight));
  }
}

}  // namespace
}  // namespace zeno::cuda_tests
