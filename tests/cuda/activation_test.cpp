#include "zeno/kernels/activation.h"

#include "tests/cuda/parity.h"

namespace zeno::cuda_tests {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

struct Shape {
  int64_t rows, cols, padding;
};
constexpr Shape kShapes[] = {{17, 256, 0}, {5, 1000, 24}, {300, 24, 0}, {3, 37, 0},
                             {4, 64, 5},   {1, 1, 0},     {2, 8192, 0}};

class CudaActivation : public Parity {
 protected:
  // Wide enough that both tails of every function are met.
  Twin input(DType dtype, const Shape& s, int64_t cols, uint64_t seed, double stddev = 3) {
    return normal(dtype, s.rows, cols, seed, stddev, 0, cols + s.padding);
  }
};

TEST_F(CudaActivation, SwigluIsTheCpuFunction) {
  for (DType dtype : kTypes) {
    for (const Shape& s : kShapes) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(s.cols));
      const Twin gate_up = input(dtype, s, 2 * s.cols, 1), dy = input(dtype, s, s.cols, 2, 1);
      const Twin y = poison(dtype, s.rows, s.cols), dgate_up = poison(dtype, s.rows, 2 * s.cols);
      swiglu_forward(cpu, gate_up.cpu, y.cpu);
      swiglu_forward(*gpu, gate_up.gpu, y.gpu);
      EXPECT_LE(difference(y), tolerance(dtype));
      swiglu_backward(cpu, gate_up.cpu, dy.cpu, dgate_up.cpu);
      swiglu_backward(*gpu, gate_up.gpu, dy.gpu, dgate_up.gpu);
      EXPECT_LE(difference(dgate_up), tolerance(dtype));
      swiglu_backward(cpu, gate_up.cpu, dy.cpu, gate_up.cpu, dy.cpu);
      swiglu_backward(*gpu, gate_up.gpu, dy.gpu, gate_up.gpu, dy.gpu);
      EXPECT_LE(difference(dy), tolerance(dtype));
      EXPECT_LE(difference(gate_up), tolerance(dtype)) << "in place";
    }
  }
}

TEST_F(CudaActivation, GeluIsTheCpuFunction) {
  for (DType dtype : kTypes) {
    for (const Shape& s : kShapes) {
      for (Gelu kind : {Gelu::exact, Gelu::tanh}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(s.cols) +
                     (kind == Gelu::exact ? " exact" : ""));
        const Twin x = input(dtype, s, s.cols, 1), dy = input(dtype, s, s.cols, 2, 1);
        const Twin y = poison(dtype, s.rows, s.cols), dx = poison(dtype, s.rows, s.cols);
        gelu_forward(cpu, kind, x.cpu, y.cpu);
        gelu_forward(*gpu, kind, x.gpu, y.gpu);
        EXPECT_LE(difference(y), tolerance(dtype));
        gelu_backward(cpu, kind, x.cpu, dy.cpu, dx.cpu);
        gelu_backward(*gpu, kind, x.gpu, dy.gpu, dx.gpu);
        EXPECT_LE(difference(dx), tolerance(dtype));
        // In place: dx is dy for one kind and x for the other.
        const Twin& out = kind == Gelu::exact ? dy : x;
        gelu_backward(cpu, kind, x.cpu, dy.cpu, out.cpu);
        gelu_backward(*gpu, kind, x.gpu, dy.gpu, out.gpu);
        EXPECT_LE(difference(out), tolerance(dtype)) << "in place";
      }
    }
  }
}

TEST_F(CudaActivation, FarTailsKeepTheirValues) {
  const std::vector<float> points{-200, -90, -30, -15, -12, -8, -5, -1e-3f, 0, 1e-30f, 1e-3f, 5, 12, 90, 200};
  const Twin x = zeros(DType::f32, 1, int64_t(points.size()));
  std::copy(points.begin(), points.end(), x.cpu.as<float>());
  upload(x);
  for (Gelu kind : {Gelu::exact, Gelu::tanh}) {
    const Twin y = poison(DType::f32, 1, x.cpu.cols);
    gelu_forward(cpu, kind, x.cpu, y.cpu);
    gelu_forward(*gpu, kind, x.gpu, y.gpu);
    const std::vector<double> a = on_cpu(y), b = on_gpu(y);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(b[i], a[i], 1e-5 * std::abs(a[i]) + 1e-36) << points[i];
  }
}

}  // namespace
}  // namespace zeno::cuda_tests
