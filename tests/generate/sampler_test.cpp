// The sampler against what its options promise: exact probabilities by chi-square, smallest sets, ties.
#include "zeno/generate/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "tests/support/expect_error.h"
#include "zeno/base/rng.h"

namespace zeno::test {
namespace {

using generate::Candidate;
using generate::SamplingOptions;

std::vector<float> random_logits(size_t count, uint64_t seed, double size = 2) {
  std::vector<float> logits(count);
  for (size_t i = 0; i < count; ++i) logits[i] = float(size * random_normal(seed, 1, i));
  return logits;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  const double top = *std::ranges::max_element(logits);
  std::vector<double> p;
  for (const float logit : logits) p.push_back(std::exp((logit - top) / temperature));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
  return p;
}

std::vector<int32_t> ranking(const std::vector<float>& logits) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order,
                           [&](int32_t a, int32_t b) { return logits[size_t(a)] > logits[size_t(b)]; });
  return order;
}

// Draws many tokens at different positions and compares their counts with `expected` by token.
void expect_distribution(const std::vector<float>& logits, const SamplingOptions& options,
                         const std::map<int32_t, double>& expected) {
  constexpr int kDraws = 40000;
  std::map<int32_t, int> counts;
  std::vector<int32_t> before;
  for (int i = 0; i < kDraws; ++i) {
    std::vector<float> row = logits;
    before.assign(size_t(i % 200), 0);
    ++counts[generate::pick_token(row, before, options, uint64_t(i / 200))];
  }
  double chi = 0;
  int cells = 0;
  for (const auto& [token, p] : expected) {
    if (p * kDraws < 5) continue;
    const double gap = counts[token] - p * kDraws;
    chi += gap * gap / (p * kDraws);
    ++cells;
  }
  for (const auto& [token, count] : counts) EXPECT_TRUE(count == 0 || expected.contains(token)) << token;
  // Mean and deviation of chi-square: 5 deviations away is not chance.
  const double freedom = std::max(1, cells - 1);
  EXPECT_LT(chi, freedom + 5 * std::sqrt(2 * freedom)) << cells << " cells";
}

TEST(Sampler, DrawsWithTheProbabilitiesOfTheModel) {
  const std::vector<float> logits = random_logits(40, 1);
  for (const double temperature : {0.7, 1.0, 1.6}) {
    std::map<int32_t, double> expected;
    const std::vector<double> p = softmax(logits, temperature);
    for (size_t i = 0; i < p.size(); ++i) expected[int32_t(i)] = p[i];
    expect_distribution(logits, {.temperature = temperature, .seed = 3}, expected);
  }
}

TEST(Sampler, DrawsFromTheFilteredSetOnly) {
  const std::vector<float> logits = random_logits(50, 2);
  const std::vector<double> p = softmax(logits, 1);
  std::map<int32_t, double> expected;
  double total = 0;
  const std::vector<int32_t> order = ranking(logits);
  for (int i = 0; i < 6; ++i) total += p[size_t(order[size_t(i)])];
  for (int i = 0; i < 6; ++i) expected[order[size_t(i)]] = p[size_t(order[size_t(i)])] / total;
  expect_distribution(logits, {.top_k = 6, .seed = 4}, expected);
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<float> logits = random_logits(30, seed);
    const std::vector<double> p = softmax(logits, 1);
    const std::vector<int32_t> order = ranking(logits);
    for (const double top_p : {0.01, 0.3, 0.9, 0.999}) {
      const std::vector<Candidate> kept = generate::candidates(logits, {.top_p = top_p});
      double mass = 0, total = 0;
      for (size_t i = 0; i < kept.size(); ++i) {
        EXPECT_EQ(kept[i].token, order[i]);
        EXPECT_LT(mass, top_p + 1e-12) << "one too many";
        mass += p[size_t(kept[i].token)];
        total += kept[i].probability;
      }
      EXPECT_GE(mass, top_p - 1e-12);
      EXPECT_NEAR(total, 1, 1e-12);
    }
  }
}

TEST(Sampler, TopKAndTopPTogether) {
  // Within the best 3 of 0.4, 0.3, 0.2, 0.1: 0.44, 0.33, 0.22.
  std::vector<float> logits;
  for (const double p : {0.1, 0.4, 0.2, 0.3}) logits.push_back(float(std::log(p)));
  const auto tokens = [&](const SamplingOptions& options) {
    std::vector<int32_t> all;
    for (const Candidate& c : generate::candidates(logits, options)) all.push_back(c.token);
    return all;
  };
  EXPECT_EQ(tokens({.top_k = 3}), (std::vector<int32_t>{1, 3, 2}));
  EXPECT_EQ(tokens({.top_k = 3, .top_p = 0.75}), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(tokens({.top_k = 3, .top_p = 0.8}), (std::vector<int32_t>{1, 3, 2}));
  EXPECT_EQ(tokens({.top_k = 9}), (std::vector<int32_t>{1, 3, 2, 0}));
  EXPECT_EQ(tokens({.min_p = 0.6}), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(tokens({.top_k = 2, .min_p = 0.1}), (std::vector<int32_t>{1, 3}));
}

TEST(Sampler, EqualLogitsRankById) {
  const std::vector<float> flat(10, 0.5f);
  std::vector<int32_t> kept;
  for (const Candidate& c : generate::candidates(flat, {.top_k = 4})) kept.push_back(c.token);
  EXPECT_EQ(kept, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(generate::candidates(flat, {.top_p = 0.35}).size(), 4u);
  std::vector<float> row = flat;
  EXPECT_EQ(generate::pick_token(row, {}, {.temperature = 0}, 0), 0);
}

TEST(Sampler, TemperatureZeroIsGreedyAndIgnoresTheSeed) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> logits = random_logits(100, seed);
    const auto best = int32_t(std::ranges::max_element(logits) - logits.begin());
    for (const SamplingOptions& o :
         {SamplingOptions{.temperature = 0, .seed = seed}, SamplingOptions{.top_k = 1, .seed = seed},
          SamplingOptions{.top_p = 1e-9, .seed = seed}, SamplingOptions{.min_p = 1, .seed = seed}}) {
      std::vector<float> row = logits;
      EXPECT_EQ(generate::pick_token(row, {}, o, seed), best);
    }
  }
}

TEST(Sampler, ChanceIsAFunctionOfSeedSequenceAndPosition) {
  const std::vector<float> logits = random_logits(500, 8, 0.5);
  const auto draw = [&](uint64_t seed, uint64_t sequence, size_t position) {
    std::vector<float> row = logits;
    return generate::pick_token(row, std::vector<int32_t>(position), {.seed = seed}, sequence);
  };
  int same = 0;
  for (size_t i = 0; i < 50; ++i) {
    EXPECT_EQ(draw(1, 2, i), draw(1, 2, i));
    same += draw(1, 2, i) == draw(1, 3, i);
    same += draw(1, 2, i) == draw(2, 2, i);
    same += draw(1, 2, i) == draw(1, 2, i + 1);
  }
  EXPECT_LT(same, 15);
}

TEST(Sampler, RepetitionPenaltyCountsEachTokenOnce) {
  std::vector<float> logits = {2, -2, 1, 0};
  generate::penalise_repetition(logits, std::vector<int32_t>{0, 0, 1, 3}, 2);
  EXPECT_EQ(logits, (std::vector<float>{1, -4, 1, 0}));
}

TEST(Sampler, SaysWhatIsWrong) {
  expect_error(ErrorKind::usage, {"temperature", "-1"},
               [] { generate::check_sampling({.temperature = -1}); });
  expect_error(ErrorKind::usage, {"top-p", "0"}, [] { generate::check_sampling({.top_p = 0}); });
  expect_error(ErrorKind::usage, {"top-k", "-3"}, [] { generate::check_sampling({.top_k = -3}); });
  expect_error(ErrorKind::usage, {"min-p"}, [] { generate::check_sampling({.min_p = std::nan("")}); });
  expect_error(ErrorKind::usage, {"repetition-penalty"},
               [] { generate::check_sampling({.repetition_penalty = 0}); });
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits = {1, bad, 2};
    expect_error(ErrorKind::data, {"logits"}, [&] { generate::pick_token(logits, {}, {}, 0); });
  }
}

}  // namespace
}  // namespace zeno::test
