// The learning rate as a pure function of the number of completed optimizer steps, so that resuming needs no
// scheduler state. The k-th optimizer step (k = 1, 2, …) uses learning_rate(config, k - 1). A skipped step
// (overflow) is not completed: the caller does not count it.
//
// DeepSpeed's schedules keep a counter that starts at -1: step 1 runs with the rate set when the engine is
// built, and the counter goes up after each completed step, so step k >= 2 uses their formula at t = k - 2.
#pragma once

#include <cstdint>

namespace zeno::config {

enum class ScheduleType {
  constant,  // Zeno's own four: linear warm-up to lr, reached at step `warmup_steps`, then …
  linear,    // … a line from lr to min_ratio · lr at total_steps
  cosine,    // … half a cosine from lr to min_ratio · lr at total_steps
  wsd,       // … stays at lr, then a line to min_ratio · lr over the last decay_steps
  warmup_lr,
  warmup_decay_lr,
  warmup_cosine_lr,
  one_cycle,
  lr_range_test,
};
enum class WarmupType { log, linear };

struct OneCycleConfig {
  double min_lr = 0, max_lr = 0;
  int64_t first_steps = 2000;
  int64_t second_steps = 0;  // 0: as first_steps
  int64_t decay_steps = 0;   // 0: no decay after the cycle
  double decay_rate = 0;
};

struct RangeTestConfig {
  double min_lr = 1e-3;
  int64_t step_size = 2000;
  double step_rate = 1;
  bool staircase = false;
};

struct ScheduleConfig {
  ScheduleType type = ScheduleType::constant;
  double lr = 1e-3;         // the optimizer's rate
  int64_t total_steps = 0;  // 0: not known yet
  double warmup = 0;        // as written: steps, or below 1 a part of all; warmup_steps is what counts
  int64_t warmup_steps = 0;
  double min_ratio = 0;                               // linear, cosine, wsd
  int64_t decay_steps = 0;                            // wsd; 0: a tenth of total_steps
  WarmupType warmup_type = WarmupType::log;           // DeepSpeed's three warm-up schedules
  double warmup_min_lr = 0, warmup_max_lr = 1e-3;     // WarmupLR, WarmupDecayLR
  double warmup_min_ratio = 0, cos_min_ratio = 1e-4;  // WarmupCosineLR
  OneCycleConfig one_cycle = {};
  RangeTestConfig range_test = {};
};

// True when the schedule is defined only with total_steps > 0.
bool needs_total_steps(ScheduleType type);

// completed_steps >= 0; throws a usage Error when total_steps is needed and missing.
double learning_rate(const ScheduleConfig& config, int64_t completed_steps);

}  // namespace zeno::config
