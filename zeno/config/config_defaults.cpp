// What holds where neither flags nor file say otherwise. A run without a config file is a fine-tune by the
// defaults of docs/config.md; with one, DeepSpeed's documented defaults hold, except for a learning rate that
// nobody gave.
#include <fmt/format.h>

#include <algorithm>

#include "zeno/config/config_resolve.h"

namespace zeno::config {
namespace {

using Kind = ValueOrigin::Kind;
constexpr const char* kRate = "optimizer.params.lr";
constexpr double kFullRate = 2e-5, kAdapterRate = 2e-4;
constexpr double kWarmup = 0.03;  // of the steps

// Does the schedule have rates of its own, whatever the optimizer's is?
bool has_own_rates(const ParsedConfig& parsed) {
  switch (parsed.config.schedule.type) {
    case ScheduleType::one_cycle:
    case ScheduleType::lr_range_test:
      return true;
    case ScheduleType::warmup_lr:
    case ScheduleType::warmup_decay_lr:
      return parsed.given("scheduler.params.warmup_max_lr");
    default:
      return false;
  }
}

void fill_rate(ParsedConfig& parsed) {
  if (parsed.given(kRate)) return;
  const LoraConfig& lora = parsed.config.lora;
  const bool adapters = lora.rank > 0 || !lora.adapter.empty();
  const std::string what = adapters ? "adapters" : "full training";
  parsed.config.optimizer.lr = adapters ? kAdapterRate : kFullRate;
  if (parsed.from_file && !has_own_rates(parsed))
    parsed.warnings.push_back(fmt::format("{}: {} in the config: {} for {}; choose with --lr", kRate,
                                          parsed.is_auto(kRate) ? "\"auto\"" : "not",
                                          parsed.config.optimizer.lr, what));
  parsed.origins.insert_or_assign(kRate, ValueOrigin{Kind::by_default, "default for " + what});
}

void fill_schedule(ParsedConfig& parsed) {
  ScheduleConfig& s = parsed.config.schedule;
  if (!parsed.given("scheduler.type")) s.type = ScheduleType::cosine;
  const bool decays =
      s.type == ScheduleType::cosine || s.type == ScheduleType::linear || s.type == ScheduleType::wsd;
  if (decays && !parsed.given("scheduler.params.warmup_num_steps")) s.warmup = kWarmup;
}

// Left open until the device is known.
void open_dtype(ParsedConfig& parsed) {
  const PrecisionConfig& p = parsed.config.precision;
  const bool asked = parsed.is_auto("fp16.enabled") || parsed.is_auto("bf16.enabled");
  const bool open = !parsed.from_file || asked || parsed.is_auto("zeno.dtype");
  if (!open || p.fp16_enabled || p.bf16_enabled || parsed.given("zeno.dtype")) return;
  parsed.origins.insert_or_assign("zeno.dtype", ValueOrigin{Kind::automatic, "by the device"});
  if (asked)
    parsed.warnings.push_back(
        "fp16 and bf16 are left at \"auto\": bf16 on a GPU, fp32 on a CPU; choose with --dtype");
}

}  // namespace

void fill_defaults(ParsedConfig& parsed) {
  fill_rate(parsed);
  open_dtype(parsed);
  if (parsed.from_file) return;
  fill_schedule(parsed);
  if (!parsed.given("zeno.auto")) parsed.config.run.choose = true;
}

std::string describe_rate(const ParsedConfig& parsed) {
  const ScheduleConfig& s = parsed.config.schedule;
  const auto origin = [&](const char* key) {
    const auto found = parsed.origins.find(key);
    return found == parsed.origins.end() ? std::string("default") : found->second.text;
  };
  std::string warmup;
  if (s.warmup >= 1) warmup = fmt::format(" with {} warm-up steps", s.warmup);
  if (s.warmup > 0 && s.warmup < 1) warmup = fmt::format(" with {:.3g} % warm-up", 100 * s.warmup);
  return fmt::format("learning rate {} ({}), {}{} ({}), {} ({})", parsed.config.optimizer.lr, origin(kRate),
                     text_of(s.type), warmup, origin("scheduler.type"),
                     name_of(parsed.config.precision.compute), origin("zeno.dtype"));
}

int64_t default_batch(int64_t sequences, int64_t seq_len, int64_t least) {
  constexpr int64_t kTokens = 32768, kStepsPerEpoch = 50;
  const int64_t wanted = std::min(kTokens / seq_len, sequences / kStepsPerEpoch);
  int64_t batch = least;
  while (2 * batch <= wanted) batch *= 2;
  return batch;
}

}  // namespace zeno::config
