#include "zeno/kernels/rope.h"

#include <array>

#include "tests/kernels/host_tensor.h"
#include "zeno/kernels/norm.h"

namespace zeno {
namespace {

void expect_frequencies(const std::vector<float>& got, const std::array<float, 32>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1.3e-7 * expected[i]) << i;
}

// Expected values: torch 2.15 with the formula of transformers 5.22.
TEST(Rope, FrequenciesMatchTransformers) {
  expect_frequencies(
      rope_frequencies(64, 10000, {}),
      {1.0f,           0.749894202f,    0.562341332f,    0.421696514f,    0.316227764f,    0.237137362f,
       0.177827939f,   0.133352146f,    0.100000001f,    0.0749894157f,   0.0562341288f,   0.0421696492f,
       0.0316227786f,  0.0237137359f,   0.0177827943f,   0.0133352149f,   0.00999999978f,  0.00749894232f,
       0.00562341325f, 0.00421696482f,  0.00316227786f,  0.00237137382f,  0.00177827943f,  0.00133352145f,
       0.00100000005f, 0.000749894185f, 0.000562341302f, 0.000421696488f, 0.000316227786f, 0.000237137385f,
       0.00017782794f, 0.00013335215f});
  const RopeScaling llama3{.kind = RopeScaling::Kind::llama3, .factor = 32};
  expect_frequencies(rope_frequencies(64, 500000, llama3), {1.0f,
                                                            0.663601279f,
                                                            0.440366626f,
                                                            0.292227834f,
                                                            0.193922758f,
                                                            0.128687382f,
                                                            0.0853971019f,
                                                            0.0566696189f,
                                                            0.0376060307f,
                                                            0.0249554086f,
                                                            0.0165604409f,
                                                            0.0109895291f,
                                                            0.00729266508f,
                                                            0.00483942125f,
                                                            0.00321144611f,
                                                            0.00129054801f,
                                                            0.000429556705f,
                                                            9.70828623e-05f,
                                                            1.94616387e-05f,
                                                            1.29147675e-05f,
                                                            8.57025589e-06f,
                                                            5.68723226e-06f,
                                                            3.77405445e-06f,
                                                            2.50446715e-06f,
                                                            1.66196742e-06f,
                                                            1.10288363e-06f,
                                                            7.31874934e-07f,
                                                            4.85673127e-07f,
                                                            3.22293289e-07f,
                                                            2.1387423e-07f,
                                                            1.41927202e-07f,
                                                            9.41830649e-08f});
}

TEST(Rope, LinearScalingDividesFrequencies) {
  const std::vector<float> plain = rope_frequencies(20, 10000, {});
  const std::vector<float> scaled =
      rope_frequencies(20, 10000, {.kind = RopeScaling::Kind::linear, .factor = 4});
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(scaled[i], plain[i] / 4);
}

struct Fixture {
  Fixture(DType dtype, int64_t rows, int64_t heads, int64_t dim)
      : x(dtype, rows, heads * dim, heads * dim + 7),
        positions(DType::i32, 1, rows),
        table(DType::f32, 50, dim),
        head_dim(dim) {
    x.random(1);
    positions.random_ids(2, 50);
    rope_table(table.view(), rope_frequencies(dim, 10000, {}));
  }
  RopeForward forward() {
    return {.x = x.view(),
            .y = x.view(),
            .positions = positions.view(),
            .table = table.view(),
            .q_heads = x.cols() / head_dim,
            .head_dim = head_dim};
  }
  RopeBackward backward(HostTensor& dx) {
    return {.dx = dx.view(),
            .positions = positions.view(),
            .table = table.view(),
            .q_heads = x.cols() / head_dim,
            .head_dim = head_dim};
  }
  HostTensor x, positions, table;
  int64_t head_dim;
};

TEST(Rope, TurnsPairsByPositionTimesFrequency) {
  for (DType dtype : kFloatTypes) {
    for (int64_t dim : {2, 6, 32, 80}) {
      Fixture f(dtype, 9, 3, dim);
      const HostTensor before = f.x;
      run_on(2, [&](StreamRef s) { rope_forward(s, f.forward()); });
      const std::vector<float> frequencies = rope_frequencies(dim, 10000, {});
      std::vector<double> expected;
      for (int64_t r = 0; r < 9; ++r) {
        for (int64_t c = 0; c < 3 * dim; ++c) {
          const int64_t i = c % dim, half = dim / 2;
          const double angle = f.positions.get(0, r) * double(frequencies[size_t(i % half)]);
          const double other = before.get(r, i < half ? c + half : c - half);
          expected.push_back(before.get(r, c) * std::cos(angle) +
                             (i < half ? -1 : 1) * other * std::sin(angle));
        }
      }
      expect_close(f.x, expected, 1e-5, "rope");  // the angle itself is rounded to fp32: 50 · 2^-24
    }
  }
}

TEST(Rope, BackwardTurnsBack) {
  Fixture f(DType::f32, 33, 2, 16);
  const HostTensor before = f.x;
  run_on(3, [&](StreamRef s) {
    rope_forward(s, f.forward());
    rope_backward(s, f.backward(f.x));
  });
  expect_close(f.x, before.values(), 5e-7, "there and back");
}

TEST(Rope, ThreadsDoNotMatterAndGapsBetweenRowsStay) {
  Fixture one(DType::bf16, 300, 4, 64);
  Fixture many = one;
  run_on(1, [&](StreamRef s) { rope_forward(s, one.forward()); });
  run_on(3, [&](StreamRef s) { rope_forward(s, many.forward()); });
  EXPECT_EQ(one.x.bytes(), many.x.bytes());
  const BF16* raw = reinterpret_cast<const BF16*>(one.x.bytes().data());
  for (int64_t gap = 0; gap < 7; ++gap) EXPECT_EQ(raw[4 * 64 + gap].bits, 0);
}

TEST(Rope, RefusesPositionsOutsideTheTable) {
  Fixture f(DType::f32, 4, 1, 8);
  f.positions.set(0, 2, 50);
  EXPECT_THROW(run_on(1, [&](StreamRef s) { rope_forward(s, f.forward()); }), Error);
}

// Queries, keys and values of `rows` tokens with QK-norm.
struct NormedHeads {
  static constexpr int64_t kQueries = 4, kKeys = 2, kValues = 3;
  NormedHeads(DType dtype, DType weights, int64_t rows, int64_t dim)
      : f(dtype, rows, kQueries + kKeys + kValues, dim),
        q_weight(weights, 1, dim),
        k_weight(weights, 1, dim),
        dq_weight(DType::f32, 1, dim),
        dk_weight(DType::bf16, 1, dim),
        rstd(DType::f32, rows, kQueries + kKeys),
        y(dtype, rows, f.x.cols()),
        dy(dtype, rows, f.x.cols()) {
    f.x.random(3, 2.0);
    q_weight.random(4, 0.3, 1.0);
    k_weight.random(5, 0.3, 1.0);
    dq_weight.random(6);
    dk_weight.random(7);
    dy.random(8);
  }
  RopeForward forward() {
    RopeForward op = f.forward();
    op.y = y.view();
    op.q_heads = kQueries, op.k_heads = kKeys;
    op.q_weight = q_weight.view(), op.k_weight = k_weight.view();
    op.rstd = rstd.view();
    return op;
  }
  // dy becomes dx.
  RopeBackward backward() {
    RopeBackward op = f.backward(dy);
    op.q_heads = kQueries, op.k_heads = kKeys;
    op.x = f.x.view();
    op.q_weight = q_weight.view(), op.k_weight = k_weight.view();
    op.rstd = rstd.view();
    op.dq_weight = dq_weight.view(), op.dk_weight = dk_weight.view();
    return op;
  }
  Fixture f;
  HostTensor q_weight, k_weight, dq_weight, dk_weight, rstd, y, dy;
};

// To the bit what a norm of each head and a rope of all of them give, one after the other.
TEST(Rope, NormOfHeadsIsANormAndARope) {
  for (DType dtype : kFloatTypes) {
    for (DType weights : {dtype, DType::f32}) {
      NormedHeads h(dtype, weights, 70, 24);
      const int64_t dim = 24, turned = 6;
      HostTensor expected = h.f.x, dx = h.dy, rstd = h.rstd;
      run_on(2, [&](StreamRef s) {
        RopeForward rope = h.f.forward();
        rope.x = rope.y = expected.view();
        rope.q_heads = turned;
        const auto head = [&](HostTensor& t, int64_t i) { return t.view().columns(i * dim, dim); };
        for (int64_t i = 0; i < turned; ++i) {
          rmsnorm_forward(s, {.x = head(expected, i),
                              .weight = i < 4 ? h.q_weight.view() : h.k_weight.view(),
                              .y = head(expected, i),
                              .rstd = rstd.view().columns(i, 1),
                              .eps = 1e-6f});
        }
        rope_forward(s, rope);
        rope_forward(s, h.forward());
        RopeBackward back = h.f.backward(dx);
        back.q_heads = turned;
        rope_backward(s, back);
        for (int64_t i = 0; i < turned; ++i) {
          rmsnorm_backward(s, {.x = head(h.f.x, i),
                               .weight = i < 4 ? h.q_weight.view() : h.k_weight.view(),
                               .rstd = rstd.view().columns(i, 1),
                               .dy = head(dx, i),
                               .dx = head(dx, i)});
        }
        rope_backward(s, h.backward());
      });
      EXPECT_EQ(h.y.values(), expected.values()) << name_of(dtype);
      EXPECT_EQ(h.rstd.bytes(), rstd.bytes());
      EXPECT_EQ(h.dy.bytes(), dx.bytes());
    }
  }
}

std::vector<double> normed_reference(const std::vector<double>& x, const std::vector<double>& q_weight,
                                     const std::vector<double>& k_weight, const HostTensor& positions,
                                     int64_t dim) {
  const std::vector<float> frequencies = rope_frequencies(dim, 10000, {});
  const int64_t all = NormedHeads::kQueries + NormedHeads::kKeys + NormedHeads::kValues;
  std::vector<double> y = x;
  for (int64_t v = 0; v < int64_t(x.size()) / dim; ++v) {
    const int64_t head = v % all, half = dim / 2;
    if (head >= NormedHeads::kQueries + NormedHeads::kKeys) continue;
    const std::vector<double>& w = head < NormedHeads::kQueries ? q_weight : k_weight;
    const double* in = x.data() + v * dim;
    double square = 0;
    for (int64_t i = 0; i < dim; ++i) square += in[i] * in[i] / double(dim);
    const double rstd = 1 / std::sqrt(square + double(1e-6f));
    for (int64_t i = 0; i < half; ++i) {
      const double angle = positions.get(0, v / all) * double(frequencies[size_t(i)]);
      const double p = in[i] * rstd * w[size_t(i)], q = in[half + i] * rstd * w[size_t(half + i)];
      y[size_t(v * dim + i)] = p * std::cos(angle) - q * std::sin(angle);
      y[size_t(v * dim + half + i)] = q * std::cos(angle) + p * std::sin(angle);
    }
  }
  return y;
}

TEST(Rope, GradientsOfNormedHeadsFollowTheReference) {
  NormedHeads h(DType::f32, DType::f32, 3, 10);
  const std::vector<double> x = h.f.x.values(), wq = h.q_weight.values(), wk = h.k_weight.values();
  const std::vector<double> dy = h.dy.values();
  std::vector<double> dq = h.dq_weight.values(), dk = h.dk_weight.values();
  run_on(2, [&](StreamRef s) {
    rope_forward(s, h.forward());
    rope_backward(s, h.backward());
  });
  const auto loss = [&](const auto& v, const auto& q, const auto& k) {
    return dot(normed_reference(v, q, k, h.f.positions, 10), dy);
  };
  expect_close(h.y, normed_reference(x, wq, wk, h.f.positions, 10), 1e-5, "y");
  expect_close(h.dy, numeric_gradient(x, [&](const auto& v) { return loss(v, wq, wk); }), 2e-5, "dx");
  const std::vector<double> q_sum = numeric_gradient(wq, [&](const auto& w) { return loss(x, w, wk); });
  const std::vector<double> k_sum = numeric_gradient(wk, [&](const auto& w) { return loss(x, wq, w); });
  for (size_t i = 0; i < dq.size(); ++i) dq[i] += q_sum[i], dk[i] += k_sum[i];
  expect_close(h.dq_weight, dq, 2e-5, "dq_weight");
  expect_close(h.dk_weight, dk, 2e-5, "dk_weight");
}

TEST(Rope, InPlaceKeepsTheRawHeadsAndLeavesValuesAlone) {
  NormedHeads h(DType::bf16, DType::bf16, 40, 16), in_place = h;
  const HostTensor before = h.f.x;
  HostTensor raw(DType::bf16, 40, 6 * 16);
  RopeForward op = in_place.forward();
  op.y = op.x;
  op.raw = raw.view();
  run_on(1, [&](StreamRef s) { rope_forward(s, h.forward()); });
  run_on(3, [&](StreamRef s) { rope_forward(s, op); });
  EXPECT_EQ(in_place.f.x.values(), h.y.values());
  EXPECT_EQ(in_place.rstd.bytes(), h.rstd.bytes());
  for (int64_t r = 0; r < 40; ++r) {
    for (int64_t c = 0; c < raw.cols(); ++c) ASSERT_EQ(raw.get(r, c), before.get(r, c));
    for (int64_t c = raw.cols(); c < before.cols(); ++c) ASSERT_EQ(h.y.get(r, c), before.get(r, c));
  }
  // Gradients from the kept copy are those from the input; threads and frozen weights change nothing in dx.
  RopeBackward from_raw = in_place.backward();
  from_raw.x = raw.view();
  run_on(1, [&](StreamRef s) { rope_backward(s, h.backward()); });
  run_on(3, [&](StreamRef s) { rope_backward(s, from_raw); });
  EXPECT_EQ(in_place.dy.bytes(), h.dy.bytes());
  EXPECT_EQ(in_place.dq_weight.bytes(), h.dq_weight.bytes());
  EXPECT_EQ(in_place.dk_weight.bytes(), h.dk_weight.bytes());
  NormedHeads frozen(DType::bf16, DType::bf16, 40, 16);
  RopeBackward no_weights = frozen.backward();
  no_weights.rstd = h.rstd.view();
  no_weights.dq_weight = no_weights.dk_weight = Tensor();
  run_on(2, [&](StreamRef s) { rope_backward(s, no_weights); });
  EXPECT_EQ(frozen.dy.bytes(), h.dy.bytes());
}

}  // namespace
}  // namespace zeno
