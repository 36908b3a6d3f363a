// SwiGLU inside the products around it: the function of the CPU, and the bits of the pass of its own.
#include "zeno/kernels/swiglu_product.h"

#include "tests/cuda/parity.h"
#include "zeno/kernels/activation.h"

namespace zeno::cuda_tests {
namespace {

struct Shape {
  int64_t rows, depth, width, padding;
};
// One tile, edges in every direction, many tiles of several bands, and what falls back to two calls (12).
constexpr Shape kShapes[] = {{256, 64, 256, 0}, {300, 200, 264, 8},     {16, 8, 8, 0},
                             {40, 64, 12, 0},   {2100, 1000, 1544, 16}, {1024, 2048, 4096, 0}};

class CudaSwigluProduct : public Parity {
 protected:
  Twin matrix(int64_t rows, int64_t cols, uint64_t seed, double stddev, int64_t padding) {
    return normal(DType::bf16, rows, cols, seed, stddev, 0, cols + padding);
  }
  static std::string name(const Shape& s) {
    return std::to_string(s.rows) + " x " + std::to_string(s.depth) + " x " + std::to_string(s.width);
  }
};

TEST_F(CudaSwigluProduct, ForwardIsTheCpuFunction) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(name(s));
    const Twin x = matrix(s.rows, s.depth, 1, 1, s.padding);
    const Twin weight = matrix(2 * s.width, s.depth, 2, 2 / std::sqrt(double(s.depth)), s.padding);
    const Twin gate_up = matrix(s.rows, 2 * s.width, 3, NAN, s.padding);
    const Twin y = matrix(s.rows, s.width, 4, NAN, s.padding), apart = poison(DType::bf16, s.rows, s.width);
    swiglu_product_forward(cpu, {.x = x.cpu, .weight = weight.cpu, .gate_up = gate_up.cpu, .y = y.cpu});
    const SwigluProduct fused{
        .x = x.gpu, .weight = weight.gpu, .gate_up = gate_up.gpu, .y = y.gpu, .fused = true};
    swiglu_product_forward(*gpu, fused);
    EXPECT_LE(difference(gate_up), tolerance(DType::bf16));
    EXPECT_LE(difference(y), tolerance(DType::bf16));
    const std::vector<double> first = on_gpu(y), products = on_gpu(gate_up);
    swiglu_forward(*gpu, gate_up.gpu, apart.gpu);
    EXPECT_EQ(on_gpu(apart), first) << "a pass of its own";
    swiglu_product_forward(*gpu, fused);
    EXPECT_EQ(on_gpu(gate_up), products) << "again";
  }
}

TEST_F(CudaSwigluProduct, BackwardIsTheCpuFunction) {
  for (const Shape& s : kShapes) {
    for (bool again : {false, true}) {
      SCOPED_TRACE(name(s) + (again ? ", y once more" : ""));
      const Twin dy = matrix(s.rows, s.depth, 1, 1, s.padding);
      const Twin weight = matrix(s.depth, s.width, 2, 1 / std::sqrt(double(s.depth)), s.padding);
      const Twin gate_up = matrix(s.rows, 2 * s.width, 3, 2, s.padding);
      const Twin dact = poison(DType::bf16, s.rows, s.width), apart = poison(DType::bf16, s.rows, s.width);
      swiglu_forward(*gpu, gate_up.gpu, apart.gpu);
      const auto run = [&](StreamRef stream, Tensor Twin::*side) {
        swiglu_product_backward(stream, {.dy = dy.*side,
                                         .weight = weight.*side,
                                         .gate_up = gate_up.*side,
                                         .dact = dact.*side,
                                         .y = again ? dact.*side : Tensor{},
                                         .fused = true});
      };
      run(cpu, &Twin::cpu);
      run(*gpu, &Twin::gpu);
      EXPECT_LE(difference(gate_up), tolerance(DType::bf16));
      if (again) {
        EXPECT_EQ(on_gpu(dact), on_gpu(apart)) << "as forward";
      }
    }
  }
}

}  // namespace
}  // namespace zeno::cuda_tests
