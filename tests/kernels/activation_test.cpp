#include "zeno/kernels/activation.h"

#include "tests/kernels/host_tensor.h"

namespace zeno {
namespace {

double silu(double x) { return x / (1 + std::exp(-x)); }

double gelu(Gelu kind, double x) {
  if (kind == Gelu::exact) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

std::vector<double> swiglu(const std::vector<double>& gate_up, int64_t rows, int64_t cols) {
  std::vector<double> y;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      y.push_back(silu(gate_up[size_t(r * 2 * cols + c)]) * gate_up[size_t(r * 2 * cols + cols + c)]);
    }
  }
  return y;
}

TEST(SwiGlu, ForwardAndBackwardFollowTheReference) {
  for (DType dtype : kFloatTypes) {
    for (int64_t cols : {1, 16, 37}) {
      HostTensor x(dtype, 3, 2 * cols, 2 * cols + 5), y(dtype, 3, cols), dy(dtype, 3, cols),
          dx(dtype, 3, 2 * cols);
      x.random(1, 2.0);
      dy.random(2);
      run_on(2, [&](StreamRef s) {
        swiglu_forward(s, x.view(), y.view());
        swiglu_backward(s, x.view(), dy.view(), dx.view());
      });
      expect_close(y, swiglu(x.values(), 3, cols), 2e-6, "swiglu");
      const auto loss = [&](const std::vector<double>& v) { return dot(swiglu(v, 3, cols), dy.values()); };
      expect_close(dx, numeric_gradient(x.values(), loss), 3e-6, "dgate_up");
    }
  }
}

TEST(SwiGlu, BackwardMayOverwriteItsInputAndThreadsDoNotMatter) {
  HostTensor x(DType::bf16, 200, 2 * 333), dy(DType::bf16, 200, 333), dx(DType::bf16, 200, 2 * 333);
  x.random(1);
  dy.random(2);
  HostTensor y(DType::bf16, 200, 333);
  run_on(1, [&](StreamRef s) {
    swiglu_forward(s, x.view(), y.view());
    swiglu_backward(s, x.view(), dy.view(), dx.view());
  });
  for (int threads : {2, 3}) {
    HostTensor in_place = x, again = dy;
    run_on(threads, [&](StreamRef s) {
      swiglu_backward(s, in_place.view(), again.view(), in_place.view(), again.view());
    });
    EXPECT_EQ(in_place.bytes(), dx.bytes());
    EXPECT_EQ(again.bytes(), y.bytes());
  }
}

TEST(Gelu, ForwardAndBackwardFollowTheReference) {
  for (Gelu kind : {Gelu::exact, Gelu::tanh}) {
    for (DType dtype : kFloatTypes) {
      HostTensor x(dtype, 2, 67), y(dtype, 2, 67), dy(dtype, 2, 67), dx(dtype, 2, 67);
      x.random(1, 2.0);
      dy.random(2);
      run_on(2, [&](StreamRef s) {
        gelu_forward(s, kind, x.view(), y.view());
        gelu_backward(s, kind, x.view(), dy.view(), dx.view());
      });
      std::vector<double> expected;
      for (double v : x.values()) expected.push_back(gelu(kind, v));
      expect_close(y, expected, 1e-6, "gelu");
      const auto loss = [&](const std::vector<double>& v) {
        double sum = 0;
        for (size_t i = 0; i < v.size(); ++i) sum += gelu(kind, v[i]) * dy.values()[i];
        return sum;
      };
      expect_close(dx, numeric_gradient(x.values(), loss), 2e-6, "dgelu");
    }
  }
}

TEST(Gelu, KeepsItsDigitsInTheLeftTailAndSaturates) {
  HostTensor x(DType::f32, 1, 2001), y(DType::f32, 1, 2001);
  for (int64_t i = 0; i < 2001; ++i) x.set(0, i, -10 + 0.01 * double(i));
  run_on(1, [&](StreamRef s) { gelu_forward(s, Gelu::exact, x.view(), y.view()); });
  for (int64_t i = 0; i < 2001; ++i) {
    const double expected = gelu(Gelu::exact, x.get(0, i));
    // The exponent -x²/2 is rounded to fp32, which costs x²/2 · 2^-24 of relative accuracy; at most 1e-5.
    ASSERT_NEAR(y.get(0, i), expected, 1e-5 * std::abs(expected) + 1e-37) << x.get(0, i);
    if (x.get(0, i) > -1) {
      ASSERT_NEAR(y.get(0, i), expected, 4e-7 * std::abs(expected)) << x.get(0, i);
    }
  }
  HostTensor far(DType::f32, 1, 3), out(DType::f32, 1, 3);
  far.set(0, 0, 1e6);
  far.set(0, 1, -1e6);
  far.set(0, 2, std::nan(""));
  for (Gelu kind : {Gelu::exact, Gelu::tanh}) {
    run_on(1, [&](StreamRef s) { gelu_forward(s, kind, far.view(), out.view()); });
    EXPECT_EQ(out.get(0, 0), 1e6);
    EXPECT_EQ(out.get(0, 1), 0);
    EXPECT_TRUE(std::isnan(out.get(0, 2)));
  }
}

TEST(Gelu, BackwardMayOverwriteEitherInput) {
  HostTensor x(DType::f32, 5, 333), dy(DType::f32, 5, 333), dx(DType::f32, 5, 333);
  x.random(1);
  dy.random(2);
  HostTensor over_x = x, over_dy = dy;
  run_on(2, [&](StreamRef s) {
    gelu_backward(s, Gelu::tanh, x.view(), dy.view(), dx.view());
    gelu_backward(s, Gelu::tanh, over_x.view(), dy.view(), over_x.view());
    gelu_backward(s, Gelu::tanh, x.view(), over_dy.view(), over_dy.view());
  });
  EXPECT_EQ(over_x.bytes(), dx.bytes());
  EXPECT_EQ(over_dy.bytes(), dx.bytes());
}

}  // namespace
}  // namespace zeno
