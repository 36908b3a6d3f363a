// The loss layer against a plain double computation over all logits: chunks, ignored rows, in-place gradient.
#include "zeno/nn/lm_head.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/kernel_stream.h"
#include "tests/support/memory.h"
#include "zeno/base/rng.h"

namespace zeno::test {
namespace {

constexpr int64_t kHidden = 8;
constexpr float kEps = 1e-5f;

struct Result {
  std::vector<float> losses, dx, dnorm, dweight;
  std::vector<int32_t> hits;
};

struct Head {
  int64_t rows, vocab;
  std::vector<float> x, norm, weight;
  std::vector<int32_t> targets, valid;

  Head(int64_t rows_, int64_t vocab_, int64_t every_ignored) : rows(rows_), vocab(vocab_) {
    const auto fill = [](std::vector<float>& v, int64_t count, uint64_t stream, float mean, float deviation) {
      for (int64_t i = 0; i < count; ++i)
        v.push_back(mean + deviation * float(random_normal(1, stream, uint64_t(i))));
    };
    fill(x, rows * kHidden, 0, 0, 1);
    fill(norm, kHidden, 1, 1, 0.2f);
    fill(weight, vocab * kHidden, 2, 0, 0.5f);
    for (int32_t r = 0; r < int32_t(rows); ++r) {
      const bool ignored = every_ignored > 0 && r % every_ignored == 0;
      targets.push_back(ignored ? -1 : int32_t(random_bits(1, 3, uint64_t(r)) % uint64_t(vocab)));
      if (!ignored) valid.push_back(r);
    }
  }

  nn::LmHeadOptions options() const {
    return {.hidden = kHidden,
            .vocab = vocab,
            .norm = nn::Norm::rms,
            .norm_eps = kEps,
            .norm_files = {},
            .norm_bias_files = {},
            .weight_files = {}};
  }

  Result run(float grad_scale, bool training, bool dx_in_place) const;
  Result reference(float grad_scale) const;
};

Result Head::run(float grad_scale, bool training, bool dx_in_place) const {
  const auto head = nn::make_lm_head(options());
  KernelStream stream;
  Memory mx(DType::f32, rows, kHidden), mnorm(DType::f32, 1, kHidden), mweight(DType::f32, vocab, kHidden);
  Memory dx(DType::f32, rows, kHidden), dnorm(DType::f32, 1, kHidden), dweight(DType::f32, vocab, kHidden);
  Memory losses(DType::f32, 1, rows), hits(DType::i32, 1, rows);
  from_floats(x, mx.view());
  from_floats(norm, mnorm.view());
  from_floats(weight, mweight.view());
  dnorm.zero();
  dweight.zero();
  const auto ints = [](const std::vector<int32_t>& v) {
    return Tensor{const_cast<int32_t*>(v.data()), DType::i32, 1, int64_t(v.size())};
  };
  const nn::Batch batch{.shape = {1, rows},
                        .tokens = {},
                        .targets = ints(targets),
                        .positions = {},
                        .doc_start = {},
                        .valid_rows = ints(valid),
                        .valid_count = int64_t(valid.size())};
  const Memory workspace(head->workspace(batch.shape, DType::f32));
  const std::vector<Tensor> params{mnorm.view(), mweight.view()}, grads{dnorm.view(), dweight.view()};
  const Tensor gradient = dx_in_place ? mx.view() : dx.view();
  head->run({.stream = stream.ref(),
             .batch = batch,
             .params = params,
             .grads = training ? std::span<const Tensor>(grads) : std::span<const Tensor>{},
             .x = mx.view(),
             .dx = training ? gradient : Tensor{},
             .losses = losses.view(),
             .hits = hits.view(),
             .grad_scale = grad_scale,
             .workspace = workspace.bytes()});
  stream.sync();
  workspace.check_guard();
  Result r{.losses = to_floats(losses.view()),
           .dx = to_floats(gradient),
           .dnorm = to_floats(dnorm.view()),
           .dweight = to_floats(dweight.view()),
           .hits = {hits.view().as<int32_t>(), hits.view().as<int32_t>() + valid.size()}};
  r.losses.resize(valid.size());
  return r;
}

// Sums a product of one row at a time in double.
Result Head::reference(float grad_scale) const {
  std::vector<double> dx(x.size()), dnorm(norm.size()), dweight(weight.size());
  Result r;
  for (const int32_t row : valid) {
    const float* xr = &x[size_t(row * kHidden)];
    double square = 0;
    for (int64_t c = 0; c < kHidden; ++c) square += double(xr[c]) * xr[c];
    const double rstd = 1 / std::sqrt(square / kHidden + kEps);
    std::vector<double> h(kHidden), dh(kHidden), logits(size_t(vocab), 0.0);
    for (size_t c = 0; c < kHidden; ++c) h[c] = xr[c] * rstd * norm[c];
    double max = -INFINITY, sum = 0, dot = 0;
    for (size_t v = 0; v < size_t(vocab); ++v) {
      for (size_t c = 0; c < kHidden; ++c) logits[v] += h[c] * weight[v * kHidden + c];
      max = std::max(max, logits[v]);
    }
    for (const double l : logits) sum += std::exp(l - max);
    const size_t target = size_t(targets[size_t(row)]);
    r.losses.push_back(float(std::log(sum) + max - logits[target]));
    r.hits.push_back(logits[target] == max);
    for (size_t v = 0; v < size_t(vocab); ++v) {
      const double g = (std::exp(logits[v] - max) / sum - (v == target)) * grad_scale;
      for (size_t c = 0; c < kHidden; ++c) {
        dh[c] += g * weight[v * kHidden + c];
        dweight[v * kHidden + c] += g * h[c];
      }
    }
    for (size_t c = 0; c < kHidden; ++c) {
      dnorm[c] += dh[c] * xr[c] * rstd;
      dot += dh[c] * norm[c] * xr[c] * rstd / kHidden;
    }
    for (size_t c = 0; c < kHidden; ++c)
      dx[size_t(row * kHidden) + c] = rstd * (dh[c] * norm[c] - xr[c] * rstd * dot);
  }
  r.dx.assign(dx.begin(), dx.end());
  r.dnorm.assign(dnorm.begin(), dnorm.end());
  r.dweight.assign(dweight.begin(), dweight.end());
  return r;
}

void expect_close(const Result& ours, const Result& reference) {
  EXPECT_LT(relative_error(ours.losses, reference.losses), 1e-6);
  EXPECT_LT(relative_error(ours.dx, reference.dx), 1e-5);
  EXPECT_LT(relative_error(ours.dnorm, reference.dnorm), 1e-5);
  EXPECT_LT(relative_error(ours.dweight, reference.dweight), 1e-5);
  EXPECT_EQ(ours.hits, reference.hits);
}

TEST(LmHead, OneChunk) {
  const Head head(23, 19, 4);
  expect_close(head.run(0.5f, true, false), head.reference(0.5f));
}

TEST(LmHead, EveryRowValid) {
  const Head head(23, 19, 0);
  expect_close(head.run(0.5f, true, false), head.reference(0.5f));
}

// 140,003 logits per row: 64 rows are a chunk, 90 rows are two with a short last one.
TEST(LmHead, SeveralChunks) {
  const Head head(100, 140'003, 10);
  const Result r = head.run(0.01f, true, true);
  expect_close(r, head.reference(0.01f));
  const auto layer = nn::make_lm_head(head.options());
  const size_t all_logits = size_t(head.rows * head.vocab) * sizeof(float);
  EXPECT_LT(layer->workspace({1, head.rows}, DType::f32), all_logits * 3 / 4);
}

TEST(LmHead, GradientMayTakeThePlaceOfTheInput) {
  const Head head(40, 31, 3);
  const Result apart = head.run(1, true, false), in_place = head.run(1, true, true);
  EXPECT_EQ(apart.dx, in_place.dx);
  EXPECT_EQ(apart.dweight, in_place.dweight);
  for (int64_t r = 0; r < head.rows; r += 3)
    for (int64_t c = 0; c < kHidden; ++c) EXPECT_EQ(in_place.dx[size_t(r * kHidden + c)], 0.0f);
}

TEST(LmHead, EvaluationHasTheSameLosses) {
  const Head head(40, 31, 3);
  EXPECT_EQ(head.run(1, false, false).losses, head.run(1, true, false).losses);
}

TEST(LmHead, NoValidRowGivesZeroGradients) {
  const Head head(9, 31, 1);
  ASSERT_TRUE(head.valid.empty());
  const Result r = head.run(1, true, false);
  EXPECT_EQ(r.dx, std::vector<float>(r.dx.size(), 0.0f));
  EXPECT_EQ(r.dweight, std::vector<float>(r.dweight.size(), 0.0f));
}

TEST(LmHead, LogitsStayBelowTheirLimitOnEveryDevice) {
  const int64_t vocab = 60'000;
  const Head head(1, vocab, 0);
  const auto layer = nn::make_lm_head(head.options());
  // Beside the logits there are only rows of the hidden size and a few scalars.
  const auto others = [](int64_t rows) { return size_t(rows) * 512 + 4096; };
  for (int64_t rows = 1; rows < 400; ++rows) {
    const size_t least = size_t(std::min<int64_t>(rows, 64) * vocab) * 2, most = size_t(32) << 20;
    const size_t bytes = layer->workspace({1, rows}, DType::bf16);
    EXPECT_GE(bytes, least) << rows;
    EXPECT_LE(bytes, most + others(rows)) << rows;
  }
  // 16384 rows: two equal chunks of whole tiles.
  const size_t gpu = layer->workspace({4, 4096, Device::Kind::cuda}, DType::bf16);
  EXPECT_GE(gpu, size_t(8192 * vocab) * 2);
  EXPECT_LE(gpu, size_t(8192 * vocab) * 2 + others(16384 + 8192));
}

}  // namespace
}  // namespace zeno::test
