#include "zeno/kernels/norm.h"

#include "tests/kernels/host_tensor.h"

namespace zeno {
namespace {

struct Case {
  bool centered;  // LayerNorm
  DType dtype, weight_type, grad_type;
  int64_t rows, width;
};

// All tensors of one norm; x and dy have gaps between rows.
struct Problem {
  explicit Problem(const Case& c)
      : centered(c.centered),
        x(c.dtype, c.rows, c.width, c.width + 3),
        y(c.dtype, c.rows, c.width),
        weight(c.weight_type, 1, c.width),
        bias(c.weight_type, 1, c.width),
        rstd(DType::f32, c.rows, 1),
        mean(DType::f32, c.rows, 1),
        dy(c.dtype, c.rows, c.width),
        along(c.dtype, c.rows, c.width),
        dx(c.dtype, c.rows, c.width),
        dweight(c.grad_type, 1, c.width),
        dbias(c.grad_type, 1, c.width) {
    x.random(1, 2.0, 0.5);
    weight.random(2, 0.3, 1.0);
    bias.random(3);
    dy.random(4);
    along.random(5);
    dweight.random(6);
    dbias.random(7);
  }
  NormForward forward() {
    return {.x = x.view(),
            .residual = {},
            .sum = {},
            .weight = weight.view(),
            .bias = centered ? bias.view() : Tensor(),
            .y = y.view(),
            .rstd = rstd.view(),
            .mean = centered ? mean.view() : Tensor(),
            .eps = 1e-5f};
  }
  NormBackward backward() {
    return {.x = x.view(),
            .weight = weight.view(),
            .rstd = rstd.view(),
            .mean = centered ? mean.view() : Tensor(),
            .dy = dy.view(),
            .dresidual = along.view(),
            .dx = dx.view(),
            .dweight = dweight.view(),
            .dbias = centered ? dbias.view() : Tensor()};
  }
  void run_forward(StreamRef s) {
    centered ? layernorm_forward(s, forward()) : rmsnorm_forward(s, forward());
  }
  void run_backward(StreamRef s) {
    centered ? layernorm_backward(s, backward()) : rmsnorm_backward(s, backward());
  }

  bool centered;
  HostTensor x, y, weight, bias, rstd, mean, dy, along, dx, dweight, dbias;
};

std::vector<double> reference(bool centered, const std::vector<double>& x, const std::vector<double>& weight,
                              const std::vector<double>& bias) {
  const size_t width = weight.size();
  std::vector<double> y(x.size());
  for (size_t begin = 0; begin < x.size(); begin += width) {
    double mean = 0, square = 0;
    for (size_t i = 0; i < width; ++i) mean += centered ? x[begin + i] / double(width) : 0;
    for (size_t i = 0; i < width; ++i)
      square += (x[begin + i] - mean) * (x[begin + i] - mean) / double(width);
    const double rstd = 1 / std::sqrt(square + double(1e-5f));
    for (size_t i = 0; i < width; ++i) {
      y[begin + i] = (x[begin + i] - mean) * rstd * weight[i] + (centered ? bias[i] : 0);
    }
  }
  return y;
}

void expect_like_reference(const Case& c) {
  SCOPED_TRACE(fmt::format("centered {} {} weight {} rows {} width {}", c.centered, name_of(c.dtype),
                           name_of(c.weight_type), c.rows, c.width));
  Problem p(c);
  const std::vector<double> x = p.x.values(), w = p.weight.values(), b = p.bias.values(), dy = p.dy.values();
  std::vector<double> dweight = p.dweight.values(), dbias = p.dbias.values(), dx = p.along.values();
  run_on(2, [&](StreamRef s) {
    p.run_forward(s);
    p.run_backward(s);
  });
  expect_close(p.y, reference(c.centered, x, w, b), 4e-6, "y");
  const auto plus = [](std::vector<double>& sum, const std::vector<double>& term) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
  };
  plus(dx, numeric_gradient(x, [&](const auto& v) { return dot(reference(c.centered, v, w, b), dy); }));
  expect_close(p.dx, dx, 1e-5, "dx");
  plus(dweight, numeric_gradient(w, [&](const auto& v) { return dot(reference(c.centered, x, v, b), dy); }));
  expect_close(p.dweight, dweight, 1e-5, "dweight");
  if (!c.centered) return;
  plus(dbias, numeric_gradient(b, [&](const auto& v) { return dot(reference(true, x, w, v), dy); }));
  expect_close(p.dbias, dbias, 1e-5, "dbias");
}

TEST(Norm, ForwardAndBackwardFollowTheReference) {
  for (bool centered : {false, true}) {
    for (DType dtype : kFloatTypes) {
      for (DType weight_type : {DType::f32, dtype}) {
        expect_like_reference({centered, dtype, weight_type, dtype, 3, 37});
        expect_like_reference({centered, dtype, weight_type, DType::f32, 12, 16});
        expect_like_reference({centered, dtype, weight_type, DType::bf16, 4, 5});
      }
    }
    expect_like_reference({centered, DType::f32, DType::f32, DType::f32, 70, 4});  // more rows than one block
  }
}

TEST(Norm, ResidualIsAddedAndKept) {
  for (bool centered : {false, true}) {
    for (DType dtype : kFloatTypes) {
      const Case c{centered, dtype, DType::f32, DType::f32, 5, 45};
      Problem p(c), q(c);
      HostTensor residual(dtype, 5, 45), sum(dtype, 5, 45);
      residual.random(8);
      for (int64_t r = 0; r < 5; ++r) {
        for (int64_t i = 0; i < 45; ++i)
          q.x.set(r, i, double(float(p.x.get(r, i)) + float(residual.get(r, i))));
      }
      NormForward op = p.forward();
      op.residual = residual.view();
      op.sum = sum.view();
      run_on(2, [&](StreamRef s) {
        centered ? layernorm_forward(s, op) : rmsnorm_forward(s, op);
        q.run_forward(s);
      });
      EXPECT_EQ(sum.values(), q.x.values());
      EXPECT_EQ(p.y.bytes(), q.y.bytes());
      EXPECT_EQ(p.rstd.bytes(), q.rstd.bytes());
      // The sum written over the residual, and the output over x.
      HostTensor x = p.x;
      NormForward in_place = op;
      in_place.sum = residual.view();
      in_place.x = in_place.y = x.view();
      run_on(2,
             [&](StreamRef s) { centered ? layernorm_forward(s, in_place) : rmsnorm_forward(s, in_place); });
      EXPECT_EQ(residual.bytes(), sum.bytes());
      EXPECT_EQ(x.values(), p.y.values());
    }
  }
}

TEST(Norm, BackwardMayOverwriteItsGradients) {
  for (bool centered : {false, true}) {
    Problem p({centered, DType::bf16, DType::bf16, DType::f32, 200, 70});
    run_on(2, [&](StreamRef s) { p.run_forward(s); });
    Problem over_dy = p, over_along = p;
    run_on(2, [&](StreamRef s) {
      p.run_backward(s);
      NormBackward first = over_dy.backward(), second = over_along.backward();
      first.dx = first.dy;
      second.dx = second.dresidual;
      centered ? layernorm_backward(s, first) : rmsnorm_backward(s, first);
      centered ? layernorm_backward(s, second) : rmsnorm_backward(s, second);
    });
    EXPECT_EQ(over_dy.dy.bytes(), p.dx.bytes());
    EXPECT_EQ(over_along.along.bytes(), p.dx.bytes());
    EXPECT_EQ(over_dy.dweight.bytes(), p.dweight.bytes());
  }
}

TEST(Norm, FrozenWeightsAndMissingResidualGradient) {
  Problem p({false, DType::f32, DType::f32, DType::f32, 3, 20}), frozen = p;
  run_on(2, [&](StreamRef s) {
    p.run_forward(s);
    frozen.run_forward(s);
    p.run_backward(s);
    NormBackward op = frozen.backward();
    op.dweight = op.dresidual = Tensor();
    rmsnorm_backward(s, op);
  });
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t i = 0; i < 20; ++i)
      ASSERT_NEAR(frozen.dx.get(r, i) + p.along.get(r, i), p.dx.get(r, i), 1e-6);
  }
}

TEST(Norm, ThreadsDoNotMatter) {
  for (bool centered : {false, true}) {
    const Case c{centered, DType::bf16, DType::bf16, DType::bf16, 333, 515};
    Problem one(c);
    run_on(1, [&](StreamRef s) {
      one.run_forward(s);
      one.run_backward(s);
    });
    for (int threads : {2, 3}) {
      Problem many(c);
      run_on(threads, [&](StreamRef s) {
        many.run_forward(s);
        many.run_backward(s);
      });
      EXPECT_EQ(many.y.bytes(), one.y.bytes());
      EXPECT_EQ(many.dx.bytes(), one.dx.bytes());
      EXPECT_EQ(many.dweight.bytes(), one.dweight.bytes());
      EXPECT_EQ(many.dbias.bytes(), one.dbias.bytes());
    }
  }
}

}  // namespace
}  // namespace zeno
