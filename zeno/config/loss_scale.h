// Loss scale of fp16 training, static or dynamic, by DeepSpeed's exact rule (its ZeRO path), with one
// difference that is the caller's to keep: gradients are unscaled with the scale their backward used, so read
// scale() before the step and call update() after it. Plain values, no thread rule.
#pragma once

#include <cstdint>

namespace zeno::config {

struct LossScaleConfig {
  double loss_scale = 0;  // 0: dynamic; else the fixed scale
  int64_t initial_scale_power = 16;
  int64_t window = 1000;                // clean steps before the scale doubles
  int64_t hysteresis = 2;               // overflows before it halves
  bool consecutive_hysteresis = false;  // refill the hysteresis after every clean step
  double min_loss_scale = 1;

  bool dynamic() const { return loss_scale == 0; }
};

// Everything a checkpoint has to keep.
struct LossScaleState {
  double scale = 1;
  int64_t hysteresis_left = 0;
  int64_t iteration = 0;
  int64_t last_overflow = -1;
};

class LossScaler {
 public:
  // Throws a usage Error when the config is not usable (see validate_loss_scale).
  explicit LossScaler(const LossScaleConfig& config);

  // The scale for the coming step.
  float scale() const { return static_cast<float>(state_.scale); }
  // After each optimizer step, also a skipped one. Throws a data Error when an overflow comes at the minimum
  // scale.
  void update(bool overflow);

  const LossScaleState& state() const { return state_; }
  // A fixed scale is what the config says now.
  void restore(const LossScaleState& state) {
    if (config_.dynamic()) state_ = state;
  }

 private:
  void on_overflow();
  void on_clean_step();

  LossScaleConfig config_;
  LossScaleState state_;
};

// Negative or non-finite scales are refused; window and minimum only matter, and are only checked, when the
// scale is dynamic.
void validate_loss_scale(const LossScaleConfig& config);

}  // namespace zeno::config
