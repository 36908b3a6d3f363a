#include "zeno/kernels/rope.h"

#include <array>

#include "tests/kernels/host_tensor.h"

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
  Rope op(bool inverse = false) {
    return {.x = x.view(),
            .positions = positions.view(),
            .table = table.view(),
            .head_dim = head_dim,
            .inverse = inverse};
  }
  HostTensor x, positions, table;
  int64_t head_dim;
};

TEST(Rope, TurnsPairsByPositionTimesFrequency) {
  for (DType dtype : kFloatTypes) {
    for (int64_t dim : {2, 6, 32, 80}) {
      Fixture f(dtype, 9, 3, dim);
      const HostTensor before = f.x;
      run_on(2, [&](StreamRef s) { rope(s, f.op()); });
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

TEST(Rope, InverseTurnsBack) {
  Fixture f(DType::f32, 33, 2, 16);
  const HostTensor before = f.x;
  run_on(3, [&](StreamRef s) {
    rope(s, f.op());
    rope(s, f.op(true));
  });
  expect_close(f.x, before.values(), 5e-7, "there and back");
}

TEST(Rope, ThreadsDoNotMatterAndGapsBetweenRowsStay) {
  Fixture one(DType::bf16, 300, 4, 64);
  Fixture many = one;
  run_on(1, [&](StreamRef s) { rope(s, one.op()); });
  run_on(3, [&](StreamRef s) { rope(s, many.op()); });
  EXPECT_EQ(one.x.bytes(), many.x.bytes());
  const BF16* raw = reinterpret_cast<const BF16*>(one.x.bytes().data());
  for (int64_t gap = 0; gap < 7; ++gap) EXPECT_EQ(raw[4 * 64 + gap].bits, 0);
}

TEST(Rope, RefusesPositionsOutsideTheTable) {
  Fixture f(DType::f32, 4, 1, 8);
  f.positions.set(0, 2, 50);
  EXPECT_THROW(run_on(1, [&](StreamRef s) { rope(s, f.op()); }), Error);
}

}  // namespace
}  // namespace zeno
