// The batch trio: train_batch_size = train_micro_batch_size_per_gpu × gradient_accumulation_steps × ranks.
#include <algorithm>
#include <cstdlib>

#include "zeno/base/error.h"
#include "zeno/config/config_resolve.h"

namespace zeno::config {
namespace {

using Kind = ValueOrigin::Kind;
constexpr const char* kTrain = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kAccum = "gradient_accumulation_steps";

Kind kind_of(const ParsedConfig& parsed, const char* key) {
  const auto found = parsed.origins.find(key);
  return found == parsed.origins.end() ? Kind::by_default : found->second.kind;
}

bool by_flag(const ParsedConfig& parsed, const char* key) { return kind_of(parsed, key) == Kind::flag; }

// "train_batch_size 32 (ds.json:2)"
std::string told(const ParsedConfig& parsed, const char* key, int64_t value) {
  const auto found = parsed.origins.find(key);
  return found == parsed.origins.end() ? fmt::format("{} {}", key, value)
                                       : fmt::format("{} {} ({})", key, value, found->second.text);
}

// "1, 2, 4 or 8": what divides a number, the largest few where there are many.
std::string divisors(int64_t number, int64_t most) {
  constexpr int64_t kTried = 4096, kShown = 6;
  std::vector<int64_t> found;
  for (int64_t d = std::min({number, most, kTried}); d >= 1 && int64_t(found.size()) < kShown; --d)
    if (number % d == 0) found.push_back(d);
  std::ranges::reverse(found);
  std::string text;
  for (size_t i = 0; i < found.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == found.size() ? " or " : ", ", found[i]);
  return text;
}

// The samples of a step that were said: by train_batch_size, or by the file's micro-batch where a flag has
// replaced that. 0: not given.
int64_t batch_to_keep(const ParsedConfig& parsed, int64_t ranks) {
  const BatchConfig& b = parsed.config.batch;
  if (b.train_batch > 0) return b.train_batch;
  const auto was = parsed.replaced.find(kMicro);
  if (was == parsed.replaced.end() || by_flag(parsed, kAccum)) return 0;
  const int64_t micro = was->second.integer.value_or(0);
  const bool sound = micro >= 1 && micro <= 1'000'000;  // what is replaced was not refused
  return sound ? micro * std::max<int64_t>(1, b.grad_accum) * ranks : 0;
}

// A step keeps its samples where a flag changes the micro-batch or the ranks: the accumulation makes room,
// and where the flags fix that, the micro-batch.
void keep_batch(ParsedConfig& parsed, int64_t keep, int64_t ranks) {
  BatchConfig& b = parsed.config.batch;
  const std::string what = b.train_batch > 0
                               ? told(parsed, kTrain, keep)
                               : fmt::format("the batch of {} samples that the config asks for", keep);
  require(keep % ranks == 0, ErrorKind::usage,
          "[batch] {} cannot be split evenly over {} ranks; use --train-batch {}{}, or a number of ranks "
          "that divides it: {}",
          what, ranks, keep > ranks ? fmt::format("{} or ", keep / ranks * ranks) : "",
          (keep / ranks + 1) * ranks, divisors(keep, keep));
  const int64_t per_rank = keep / ranks;
  const auto fits = [&](const char* key, const char* flag, int64_t value) {
    require(per_rank % value == 0, ErrorKind::usage,
            "[batch] {} is {} for each of {} ranks, which is not divisible by {}; use {} {}", what, per_rank,
            ranks, told(parsed, key, value), flag, divisors(per_rank, per_rank));
    return per_rank / value;
  };
  const BatchConfig before = b;
  b.train_batch = keep;
  if (by_flag(parsed, kAccum)) {
    b.micro_batch = fits(kAccum, "--grad-accum", b.grad_accum);
  } else if (b.micro_batch > 0) {
    b.grad_accum = fits(kMicro, "--micro-batch", b.micro_batch);
  } else {
    b.grad_accum = std::clamp<int64_t>(b.grad_accum, 1, per_rank);
    while (per_rank % b.grad_accum != 0) --b.grad_accum;
    b.micro_batch = per_rank / b.grad_accum;
  }
  const auto changed = [&](const char* key, int64_t was, int64_t now) {
    if (kind_of(parsed, key) != Kind::file || was == now) return;
    parsed.warnings.push_back(fmt::format("{} becomes {}: {} stays on {} rank{}", told(parsed, key, was), now,
                                          what, ranks, ranks == 1 ? "" : "s"));
    parsed.derive(key, "train / (micro × accumulation × ranks)");
  };
  changed(kMicro, before.micro_batch, b.micro_batch);
  changed(kAccum, before.grad_accum, b.grad_accum);
}

}  // namespace

bool batch_can_be_resolved(const ParsedConfig& parsed) {
  const BatchConfig& b = parsed.config.batch;
  return b.train_batch > 0 || b.micro_batch > 0 || !parsed.from_file || parsed.is_auto(kMicro) ||
         parsed.is_auto(kTrain);
}

void resolve_batch(TrainConfig& config, int64_t ranks) {
  ensure(ranks > 0, "[batch] ranks: got {}, expected > 0", ranks);
  BatchConfig& b = config.batch;
  require(b.train_batch >= 0 && b.micro_batch >= 0 && b.grad_accum >= 0, ErrorKind::usage,
          "[batch] got train {}, micro {}, accumulation {}, expected positive numbers", b.train_batch,
          b.micro_batch, b.grad_accum);
  require(
      b.train_batch > 0 || b.micro_batch > 0, ErrorKind::usage,
      "[batch] the config gives neither train_batch_size nor train_micro_batch_size_per_gpu, one of which "
      "DeepSpeed needs; add one, or give --micro-batch N");
  const BatchConfig given = b;
  if (b.train_batch == 0 || b.micro_batch == 0) {
    if (b.grad_accum == 0) b.grad_accum = 1;
  } else if (b.grad_accum == 0) {
    b.grad_accum = b.train_batch / b.micro_batch / ranks;
  }
  if (b.micro_batch == 0) b.micro_batch = b.train_batch / ranks / b.grad_accum;
  if (b.train_batch == 0) b.train_batch = b.micro_batch * b.grad_accum * ranks;
  const bool fits =
      b.micro_batch > 0 && b.grad_accum > 0 && b.train_batch == b.micro_batch * b.grad_accum * ranks;
  const auto shown = [](int64_t value) { return value == 0 ? std::string("?") : std::to_string(value); };
  require(fits, ErrorKind::usage,
          "[batch] got train_batch_size {}, expected train_micro_batch_size_per_gpu {} × "
          "gradient_accumulation_steps {} × {} ranks; change one of them",
          shown(given.train_batch), shown(given.micro_batch), shown(given.grad_accum), ranks);
}

void resolve_batch(ParsedConfig& parsed, int64_t ranks) {
  ensure(ranks > 0, "[batch] ranks: got {}, expected > 0", ranks);
  BatchConfig& b = parsed.config.batch;
  if (b.train_batch == 0 && b.micro_batch == 0 && batch_can_be_resolved(parsed)) {
    b.micro_batch = 1;
    if (parsed.from_file) {
      parsed.warnings.push_back(fmt::format("{}: \"auto\" is read as 1; choose with --micro-batch", kMicro));
    }
  }
  const BatchConfig before = b;
  const bool all = b.train_batch > 0 && b.micro_batch > 0 && b.grad_accum > 0;
  const bool consistent = all && b.train_batch == b.micro_batch * b.grad_accum * ranks;
  const int64_t keep = consistent ? 0 : batch_to_keep(parsed, ranks);
  require(keep == 0 || !by_flag(parsed, kMicro) || !by_flag(parsed, kAccum), ErrorKind::usage,
          "[batch] {} is not --micro-batch {} × --grad-accum {} × {} ranks; leave out one of these flags, or "
          "give --train-batch {}",
          told(parsed, kTrain, keep), b.micro_batch, b.grad_accum, ranks,
          b.micro_batch * b.grad_accum * ranks);
  if (keep > 0) keep_batch(parsed, keep, ranks);
  resolve_batch(parsed.config, ranks);
  if (before.train_batch == 0) parsed.derive(kTrain, "micro × accumulation × ranks");
  if (before.micro_batch == 0) parsed.derive(kMicro, "train / (accumulation × ranks)");
  if (before.grad_accum == 0) parsed.derive(kAccum, "train / (micro × ranks)");
}

}  // namespace zeno::config
