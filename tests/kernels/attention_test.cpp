#include "zeno/kernels/attention.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/support/kernel_stream.h"

namespace zeno {
namespace {

using Doubles = std::vector<double>;

struct Case {
  AttentionShape shape;
  std::vector<int32_t> docs;  // doc_start of every token, or empty

  int64_t tokens() const { return shape.batch * shape.seq; }
  int64_t width() const { return (shape.heads + 2 * shape.kv_heads) * shape.head_dim; }
  int64_t out_width() const { return shape.heads * shape.head_dim; }
  bool sees(int64_t b, int64_t q, int64_t k) const {
    const int64_t doc = docs.empty() ? 0 : docs[size_t(b * shape.seq + q)];
    return k <= q && k >= doc && (shape.window == 0 || k > q - shape.window);
  }
};

Case make_case(int64_t batch, int64_t seq, int64_t heads, int64_t kv_heads, int64_t d, int64_t window = 0,
               std::vector<int64_t> lengths = {}) {
  Case c{.shape = {.batch = batch,
                   .seq = seq,
                   .heads = heads,
                   .kv_heads = kv_heads,
                   .head_dim = d,
                   .scale = 1 / std::sqrt(float(d)),
                   .window = window}};
  for (int64_t b = 0; b < batch && !lengths.empty(); ++b) {
    int64_t start = 0;
    size_t doc = size_t(b);  // each sequence is cut at other places
    for (int64_t t = 0; t < seq; ++t) {
      if (t - start == lengths[doc % lengths.size()]) {
        start = t;
        ++doc;
      }
      c.docs.push_back(int32_t(start));
    }
  }
  return c;
}

Doubles random_values(size_t count, uint32_t seed, double size = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> value(0, size);
  Doubles v(count);
  for (double& x : v) x = value(random);
  return v;
}

// The definition, in double, one query at a time.
struct Reference {
  Doubles out, lse, dqkv;

  Reference(const Case& c, const Doubles& qkv, const Doubles& dout)
      : out(size_t(c.tokens() * c.out_width())),
        lse(size_t(c.shape.batch * c.shape.heads * c.shape.seq)),
        dqkv(qkv.size()) {
    const auto& s = c.shape;
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t h = 0; h < s.heads; ++h) {
        for (int64_t q = 0; q < s.seq; ++q) row(c, qkv, dout, b, h, q);
      }
    }
  }

  void row(const Case& c, const Doubles& qkv, const Doubles& dout, int64_t b, int64_t h, int64_t q) {
    const auto& s = c.shape;
    const int64_t d = s.head_dim, g = h / (s.heads / s.kv_heads);
    const auto at = [&](int64_t t, int64_t part) { return size_t((b * s.seq + t) * c.width() + part * d); };
    const auto query = at(q, h);
    const auto key = [&](int64_t t) { return at(t, s.heads + g); };
    const auto value = [&](int64_t t) { return at(t, s.heads + s.kv_heads + g); };
    const auto o = size_t((b * s.seq + q) * c.out_width() + h * d);
    Doubles p(size_t(s.seq)), dp(size_t(s.seq));
    double total = 0, delta = 0;
    for (int64_t t = 0; t <= q; ++t) {
      double score = 0;
      for (int64_t i = 0; i < d; ++i) score += qkv[query + i] * qkv[key(t) + i];
      p[t] = c.sees(b, q, t) ? std::exp(score * s.scale) : 0;
      total += p[t];
    }
    lse[size_t((b * s.heads + h) * s.seq + q)] = std::log(total);
    for (int64_t t = 0; t <= q; ++t) {
      p[t] /= total;
      for (int64_t i = 0; i < d; ++i) {
        out[o + i] += p[t] * qkv[value(t) + i];
        dp[t] += dout[o + i] * qkv[value(t) + i];
        dqkv[value(t) + i] += p[t] * dout[o + i];
      }
      delta += p[t] * dp[t];
    }
    for (int64_t t = 0; t <= q; ++t) {
      const double ds = p[t] * (dp[t] - delta) * s.scale;
      for (int64_t i = 0; i < d; ++i) {
        dqkv[query + i] += ds * qkv[key(t) + i];
        dqkv[key(t) + i] += ds * qkv[query + i];
      }
    }
  }
};

template <class T>
std::vector<T> rounded(const Doubles& v) {
  std::vector<T> r(v.size());
  for (size_t i = 0; i < v.size(); ++i) r[i] = T(float(v[i]));
  return r;
}
template <class T>
Doubles widened(const std::vector<T>& v) {
  Doubles r(v.size());
  for (size_t i = 0; i < v.size(); ++i) r[i] = double(float(v[i]));
  return r;
}

template <class T>
struct Result {
  std::vector<T> out, dqkv;
  std::vector<float> lse;
};

template <class T>
Result<T> run(const Case& c, std::vector<T> qkv, std::vector<T> dout, int threads = 2) {
  const auto& s = c.shape;
  Result<T> r{.out = std::vector<T>(dout.size()),
              .dqkv = std::vector<T>(qkv.size(), T(NAN)),
              .lse = std::vector<float>(size_t(s.batch * s.heads * s.seq))};
  std::vector<int32_t> docs = c.docs;
  std::vector<uint8_t> workspace(attention_backward_workspace(Device::Kind::cpu, s, DType::f32), 0xff);
  const auto qkv_like = [&](std::vector<T>& v) {
    return Tensor(v.data(), dtype_of<T>(), c.tokens(), c.width());
  };
  const auto out_like = [&](std::vector<T>& v) {
    return Tensor(v.data(), dtype_of<T>(), c.tokens(), c.out_width());
  };
  const Tensor lse(r.lse.data(), DType::f32, s.batch * s.heads, s.seq);
  const Tensor starts = docs.empty() ? Tensor() : Tensor(docs.data(), DType::i32, 1, c.tokens());
  KernelStream stream(threads);
  attention_forward(
      stream.ref(),
      {.shape = s, .qkv = qkv_like(qkv), .doc_start = starts, .out = out_like(r.out), .lse = lse});
  attention_backward(stream.ref(),
                     {.shape = s,
                      .qkv = qkv_like(qkv),
                      .doc_start = starts,
                      .out = out_like(r.out),
                      .lse = lse,
                      .dout = out_like(dout),
                      .dqkv = qkv_like(r.dqkv),
                      .workspace = Tensor(workspace.data(), DType::u8, 1, int64_t(workspace.size()))});
  stream.sync();
  return r;
}

// Largest error relative to the largest value.
double error(const Doubles& got, const Doubles& expected) {
  double worst = 0, size = 1e-30;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    worst = std::max(worst, std::abs(got[i] - expected[i]));
    size = std::max(size, std::abs(expected[i]));
  }
  return worst / size;
}

template <class T>
void expect_match(const Case& c, double forward, double backward) {
  const auto qkv = rounded<T>(random_values(size_t(c.tokens() * c.width()), 1));
  const auto dout = rounded<T>(random_values(size_t(c.tokens() * c.out_width()), 2));
  const Reference expected(c, widened(qkv), widened(dout));
  const Result<T> r = run(c, qkv, dout);
  const auto& s = c.shape;
  const std::string what =
      fmt::format("B {} T {} H {} G {} D {} window {} docs {} {}", s.batch, s.seq, s.heads, s.kv_heads,
                  s.head_dim, s.window, !c.docs.empty(), name_of(dtype_of<T>()));
  EXPECT_LT(error(widened(r.out), expected.out), forward) << what;
  EXPECT_LT(error(widened(r.lse), expected.lse), 1e-6) << what;
  EXPECT_LT(error(widened(r.dqkv), expected.dqkv), backward) << what;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      make_case(1, 1, 1, 1, 8),
      make_case(2, 5, 2, 1, 16),
      make_case(1, 47, 1, 1, 64),
      make_case(1, 49, 3, 1, 80),
      make_case(2, 129, 4, 2, 32),
      make_case(1, 200, 2, 2, 96),
      make_case(1, 130, 1, 1, 256),
      make_case(1, 97, 11, 1, 8),
      make_case(1, 450, 2, 1, 24),
      make_case(2, 300, 2, 1, 16, 0, {1, 2, 50, 3, 120, 7}),
      make_case(1, 400, 1, 1, 8, 0, {200, 130}),
      make_case(1, 300, 2, 1, 16, 1),
      make_case(1, 420, 2, 2, 8, 100),
      make_case(2, 260, 1, 1, 8, 30, {90, 13}),
      make_case(2, 150, 2, 1, 100),  // head sizes that are no multiple of 8
      make_case(1, 70, 3, 3, 4),
      make_case(1, 61, 1, 1, 7),
  };
  return list;
}

TEST(Attention, MatchesReference) {
  for (const Case& c : cases()) expect_match<float>(c, 1e-6, 2e-6);
}

TEST(Attention, EveryHeadSize) {
  std::vector<int64_t> sizes{50, 63, 100, 127, 130, 200, 255};
  for (int64_t d = 1; d <= 34; ++d) sizes.push_back(d);
  for (const int64_t d : sizes) expect_match<float>(make_case(1, 51, 2, 1, d), 2e-6, 4e-6);
}

TEST(Attention, SixteenBitStorage) {
  for (size_t i : {1, 4, 9, 13, 14}) {
    expect_match<BF16>(cases()[i], 5e-3, 1.2e-2);
    expect_match<F16>(cases()[i], 6e-4, 1.5e-3);
  }
}

// Scores far apart and far from zero: the running maximum has to carry them.
TEST(Attention, LargeScores) {
  const Case c = make_case(1, 300, 1, 1, 16);
  const auto qkv = rounded<float>(random_values(size_t(c.tokens() * c.width()), 3, 8));
  const auto dout = rounded<float>(random_values(size_t(c.tokens() * c.out_width()), 4));
  const Reference expected(c, widened(qkv), widened(dout));
  const Result<float> r = run(c, qkv, dout);
  EXPECT_LT(error(widened(r.out), expected.out), 2e-5);
  EXPECT_LT(error(widened(r.dqkv), expected.dqkv), 2e-5);
}

TEST(Attention, ReferenceGradientsAreDerivatives) {
  const Case c = make_case(1, 7, 2, 1, 8, 4, {3, 4});
  const Doubles qkv = random_values(size_t(c.tokens() * c.width()), 5);
  const Doubles dout = random_values(size_t(c.tokens() * c.out_width()), 6);
  const auto loss = [&](const Doubles& x) {
    const Reference r(c, x, dout);
    double sum = 0;
    for (size_t i = 0; i < dout.size(); ++i) sum += r.out[i] * dout[i];
    return sum;
  };
  const Reference r(c, qkv, dout);
  for (size_t i = 0; i < qkv.size(); i += 5) {
    Doubles up = qkv, down = qkv;
    up[i] += 1e-5;
    down[i] -= 1e-5;
    EXPECT_NEAR(r.dqkv[i], (loss(up) - loss(down)) / 2e-5, 1e-8);
  }
}

TEST(Attention, PackedDocumentsEqualSeparateOnes) {
  const Case packed = make_case(1, 330, 2, 1, 16, 0, {130, 200});
  const auto qkv = rounded<float>(random_values(size_t(packed.tokens() * packed.width()), 7));
  const auto dout = rounded<float>(random_values(size_t(packed.tokens() * packed.out_width()), 8));
  const Result<float> whole = run(packed, qkv, dout);
  for (const auto& [begin, length] : {std::pair{0, 130}, {130, 200}}) {
    const Case one = make_case(1, length, 2, 1, 16);
    const auto part = [&](const std::vector<float>& v, int64_t width) {
      return std::vector<float>(v.begin() + begin * width, v.begin() + (begin + length) * width);
    };
    const Result<float> r = run(one, part(qkv, one.width()), part(dout, one.out_width()));
    EXPECT_LT(error(widened(r.out), widened(part(whole.out, one.out_width()))), 1e-6);
    EXPECT_LT(error(widened(r.dqkv), widened(part(whole.dqkv, one.width()))), 2e-6);
  }
}

TEST(Attention, ThreadsDoNotChangeBits) {
  for (size_t i : {4, 9}) {
    const Case& c = cases()[i];
    const auto qkv = rounded<float>(random_values(size_t(c.tokens() * c.width()), 9));
    const auto dout = rounded<float>(random_values(size_t(c.tokens() * c.out_width()), 10));
    const Result<float> one = run(c, qkv, dout, 1);
    for (int threads : {2, 3}) {
      const Result<float> more = run(c, qkv, dout, threads);
      EXPECT_EQ(one.out, more.out);
      EXPECT_EQ(one.lse, more.lse);
      EXPECT_EQ(one.dqkv, more.dqkv);
    }
  }
}

TEST(Attention, EverySimdTarget) {
  for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    for (size_t i : {1, 3, 13, 14, 16}) expect_match<float>(cases()[i], 2e-6, 4e-6);
    hwy::SetSupportedTargetsForTest(0);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(Attention, RefusesWrongShapes) {
  const Case odd = make_case(1, 4, 3, 2, 8), wide = make_case(1, 4, 1, 1, 264);
  for (const Case& c : {odd, wide}) {
    const std::vector<float> qkv(size_t(c.tokens() * c.width())), dout(size_t(c.tokens() * c.out_width()));
    EXPECT_THROW(run(c, qkv, dout), Error);
  }
}

}  // namespace
}  // namespace zeno
