#include "zeno/config/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "zeno/base/error.h"

namespace zeno::config {
namespace {

double as_double(int64_t value) { return static_cast<double>(value); }

// Zeno's own schedules: step k of the warm-up runs with k / warmup_steps of the rate, so no step is wasted at
// zero.
double own_ratio(const ScheduleConfig& config, int64_t completed) {
  const int64_t warmup = config.warmup_steps, total = config.total_steps;
  if (completed < warmup) return as_double(completed + 1) / as_double(warmup);
  if (config.type == ScheduleType::constant) return 1;
  int64_t start = warmup;
  if (config.type == ScheduleType::wsd) {
    const int64_t decay = config.decay_steps > 0 ? config.decay_steps : std::max<int64_t>(1, total / 10);
    start = std::max(warmup, total - decay);
  }
  if (completed < start) return 1;
  const double done =
      std::min(1.0, as_double(completed - start) / as_double(std::max<int64_t>(1, total - start)));
  const double left =
      config.type == ScheduleType::cosine ? (1 + std::cos(std::numbers::pi * done)) / 2 : 1 - done;
  return config.min_ratio + (1 - config.min_ratio) * left;
}

// DeepSpeed's warm-up at counter t >= 0, from 0 to 1.
double warmup_gamma(const ScheduleConfig& config, int64_t t, int64_t warmup) {
  if (config.warmup_type == WarmupType::log) return std::log(as_double(t + 1)) / std::log(as_double(warmup));
  return as_double(t) / as_double(warmup);
}

double deepspeed_warmup(const ScheduleConfig& config, int64_t completed) {
  const int64_t t = completed - 1;
  const int64_t warmup = std::max<int64_t>(2, config.warmup_steps);
  double gamma = 0;  // before the counter starts
  if (t >= warmup && config.type == ScheduleType::warmup_lr) {
    gamma = 1;
  } else if (t >= warmup) {
    gamma = std::max(
        0.0, as_double(config.total_steps - t) / std::max(1.0, as_double(config.total_steps - warmup)));
  } else if (t >= 0) {
    gamma = warmup_gamma(config, t, warmup);
  }
  return config.warmup_min_lr + (config.warmup_max_lr - config.warmup_min_lr) * gamma;
}

double deepspeed_warmup_cosine(const ScheduleConfig& config, int64_t completed) {
  const int64_t t = completed - 1;
  if (t < 0) return 0;
  const int64_t warmup = std::max<int64_t>(2, config.warmup_steps);
  if (t < warmup) {
    const double low = config.warmup_min_ratio;
    return config.lr * (low + (1 - low) * warmup_gamma(config, t, warmup));
  }
  const double span = as_double(std::max<int64_t>(1, config.total_steps - warmup));
  const double done = std::min(1.0, as_double(t - warmup + 1) / span);
  const double low = config.cos_min_ratio;
  return config.lr * std::max(0.0, low + (1 - low) * (1 + std::cos(std::numbers::pi * done)) / 2);
}

double one_cycle(const OneCycleConfig& config, int64_t completed) {
  const int64_t second = config.second_steps > 0 ? config.second_steps : config.first_steps;
  const int64_t cycle = config.first_steps + second;
  if (completed < cycle) {
    const double up = as_double(completed) / as_double(config.first_steps);
    const double down = as_double(cycle - completed) / as_double(second);
    return config.min_lr + (config.max_lr - config.min_lr) * (completed <= config.first_steps ? up : down);
  }
  if (config.decay_steps == 0 || config.decay_rate == 0) return config.min_lr;
  return config.min_lr /
         (1 + config.decay_rate * as_double(completed - cycle) / as_double(config.decay_steps));
}

double range_test(const RangeTestConfig& config, int64_t completed) {
  const double interval = as_double(completed) / as_double(config.step_size);
  return config.min_lr * (1 + config.step_rate * (config.staircase ? std::floor(interval) : interval));
}

}  // namespace

bool needs_total_steps(ScheduleType type) {
  return type == ScheduleType::linear || type == ScheduleType::cosine || type == ScheduleType::wsd ||
         type == ScheduleType::warmup_decay_lr || type == ScheduleType::warmup_cosine_lr;
}

double learning_rate(const ScheduleConfig& config, int64_t completed_steps) {
  ensure(completed_steps >= 0, "[schedule] completed steps: got {}, expected >= 0", completed_steps);
  require(
      config.total_steps > 0 || !needs_total_steps(config.type), ErrorKind::usage,
      "[schedule] the total number of steps is not known; give --steps or scheduler.params.total_num_steps");
  switch (config.type) {
    case ScheduleType::constant:
    case ScheduleType::linear:
    case ScheduleType::cosine:
    case ScheduleType::wsd:
      return config.lr * own_ratio(config, completed_steps);
    case ScheduleType::warmup_lr:
    case ScheduleType::warmup_decay_lr:
      return deepspeed_warmup(config, completed_steps);
    case ScheduleType::warmup_cosine_lr:
      return deepspeed_warmup_cosine(config, completed_steps);
    case ScheduleType::one_cycle:
      return one_cycle(config.one_cycle, completed_steps);
    case ScheduleType::lr_range_test:
      return range_test(config.range_test, completed_steps);
  }
  return config.lr;
}

}  // namespace zeno::config
