#include "zeno/config/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "zeno/base/error.h"

namespace zeno::config {

void validate_loss_scale(const LossScaleConfig& config) {
  constexpr auto kUsage = ErrorKind::usage;
  require(std::isfinite(config.loss_scale) && config.loss_scale >= 0, kUsage,
          "[fp16.loss_scale] got {}, expected a finite number >= 0; 0 means dynamic", config.loss_scale);
  require(static_cast<float>(config.loss_scale) <= 3e38f, kUsage,
          "[fp16.loss_scale] got {}, expected a number that fits fp32", config.loss_scale);
  if (!config.dynamic()) return;
  require(config.window > 0, kUsage, "[fp16.loss_scale_window] got {}, expected > 0", config.window);
  require(config.hysteresis >= 1, kUsage, "[fp16.hysteresis] got {}, expected >= 1", config.hysteresis);
  require(std::isfinite(config.min_loss_scale) && config.min_loss_scale > 0, kUsage,
          "[fp16.min_loss_scale] got {}, expected > 0", config.min_loss_scale);
  require(config.initial_scale_power >= 0 && config.initial_scale_power <= 126, kUsage,
          "[fp16.initial_scale_power] got {}, expected 0 to 126", config.initial_scale_power);
}

LossScaler::LossScaler(const LossScaleConfig& config) : config_(config) {
  validate_loss_scale(config);
  state_.scale =
      config.dynamic() ? std::ldexp(1.0, static_cast<int>(config.initial_scale_power)) : config.loss_scale;
  state_.hysteresis_left = config.hysteresis;
}

void LossScaler::update(bool overflow) {
  if (!config_.dynamic()) return;
  if (overflow) {
    on_overflow();
  } else {
    on_clean_step();
  }
  ++state_.iteration;
}

void LossScaler::on_overflow() {
  if (config_.hysteresis == 1 || state_.hysteresis_left == 1) {
    // Equality as in the reference: a scale that started below the minimum is lifted to it, not refused.
    require(state_.scale != config_.min_loss_scale, ErrorKind::data,
            "[loss scale] gradients overflow at the minimum scale: got scale {}, expected room to halve it; "
            "the loss has diverged or a weight is not finite: lower the learning rate, train in bf16, or "
            "check the data",
            state_.scale);
    state_.scale = std::max(state_.scale / 2, config_.min_loss_scale);
  } else {
    --state_.hysteresis_left;
  }
  state_.last_overflow = state_.iteration;
}

void LossScaler::on_clean_step() {
  constexpr double kLargest = 0x1p126;  // beyond this the scale is no fp32 number
  if (config_.consecutive_hysteresis) state_.hysteresis_left = config_.hysteresis;
  const int64_t clean = state_.iteration - state_.last_overflow - 1;
  if (clean > 0 && clean % config_.window == 0) {
    state_.scale = std::min(state_.scale * 2, kLargest);
    if (!config_.consecutive_hysteresis) state_.hysteresis_left = config_.hysteresis;
  }
}

}  // namespace zeno::config
