#include "zeno/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "zeno/base/error.h"
#include "zeno/base/rng.h"

namespace zeno::generate {
namespace {

// The most likely token; throws when there is none.
size_t best_of(std::span<const float> logits) {
  const auto best = std::ranges::max_element(logits, [](float a, float b) { return a < b || std::isnan(b); });
  require(best != logits.end() && std::isfinite(*best), ErrorKind::data,
          "[generate] logits: got {}, expected numbers; the weights are damaged or overflow in this dtype",
          best == logits.end() ? std::numeric_limits<float>::quiet_NaN() : *best);
  return size_t(best - logits.begin());
}

bool ranks_after(const Candidate& a, const Candidate& b) {
  return a.probability != b.probability ? a.probability < b.probability : a.token > b.token;
}

// The first ones by rank, until there are top_k of them or they hold top_p of the total. A heap gives them
// without sorting a whole vocabulary.
std::vector<Candidate> leaders(std::vector<Candidate> all, double total, const SamplingOptions& options) {
  const size_t most = options.top_k > 0 ? std::min(size_t(options.top_k), all.size()) : all.size();
  std::make_heap(all.begin(), all.end(), ranks_after);
  std::vector<Candidate> kept;
  const auto pop = [&] {
    std::pop_heap(all.begin(), all.end() - int64_t(kept.size()), ranks_after);
    return all[all.size() - kept.size() - 1];
  };
  while (kept.size() < most && options.top_k > 0) kept.push_back(pop());
  if (options.top_p >= 1) return kept;
  // Top-p counts within what top-k left.
  if (options.top_k > 0) {
    total = 0;
    for (const Candidate& candidate : kept) total += candidate.probability;
  }
  double mass = 0;
  for (size_t i = 0; i < most; ++i) {
    if (i == kept.size()) kept.push_back(pop());
    mass += kept[i].probability;
    if (mass >= options.top_p * total) {
      kept.resize(i + 1);
      break;
    }
  }
  return kept;
}

}  // namespace

void check_sampling(const SamplingOptions& o) {
  const auto in_range = [](const char* what, double value, double low, double high) {
    require(value >= low && value <= high, ErrorKind::usage, "[generate] {}: got {}, expected {} to {}", what,
            value, low, high);
  };
  in_range("temperature", o.temperature, 0, 100);
  in_range("top-k", double(o.top_k), 0, 1e9);
  in_range("min-p", o.min_p, 0, 1);
  require(o.top_p > 0 && o.top_p <= 1, ErrorKind::usage,
          "[generate] top-p: got {}, expected more than 0, up to 1", o.top_p);
  require(o.repetition_penalty > 0 && o.repetition_penalty <= 100, ErrorKind::usage,
          "[generate] repetition-penalty: got {}, expected more than 0, up to 100", o.repetition_penalty);
}

void penalise_repetition(std::span<float> logits, std::span<const int32_t> before, double penalty) {
  if (penalty == 1) return;
  const std::unordered_set<int32_t> seen(before.begin(), before.end());
  for (const int32_t token : seen) {
    if (size_t(token) >= logits.size()) continue;
    float& logit = logits[size_t(token)];
    logit = float(logit > 0 ? logit / penalty : logit * penalty);
  }
}

std::vector<Candidate> candidates(std::span<const float> logits, const SamplingOptions& options) {
  const double top = logits[best_of(logits)];
  std::vector<Candidate> all;
  all.reserve(logits.size());
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((double(logits[i]) - top) / options.temperature);
    if (!(weight > 0)) continue;
    all.push_back({int32_t(i), weight});
    total += weight;
  }
  if (options.top_k > 0 || options.top_p < 1) all = leaders(std::move(all), total, options);
  // The largest weight is 1, whatever was left out.
  std::erase_if(all, [&](const Candidate& c) { return c.probability < options.min_p; });
  total = 0;
  for (const Candidate& candidate : all) total += candidate.probability;
  for (Candidate& candidate : all) candidate.probability /= total;
  return all;
}

int32_t pick_token(std::span<float> logits, std::span<const int32_t> before, const SamplingOptions& options,
                   uint64_t sequence) {
  penalise_repetition(logits, before, options.repetition_penalty);
  if (options.temperature == 0 || options.top_k == 1) return int32_t(best_of(logits));
  const std::vector<Candidate> all = candidates(logits, options);
  const uint64_t bits = random_bits(options.seed, sequence, before.size());
  double rest = double(bits >> 11) * 0x1p-53;
  for (const Candidate& candidate : all) {
    rest -= candidate.probability;
    if (rest < 0) return candidate.token;
  }
  return all.back().token;  // rounding left a trace of probability
}

}  // namespace zeno::generate
