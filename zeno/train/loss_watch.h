// Watches the loss of every step and reports bad ones: a loss or gradient that is not finite, and a spike of
// the loss. Plain values. Every rank has one; all see the same losses, so all decide the same.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "zeno/config/config.h"

namespace zeno::train {

class LossWatch {
 public:
  enum class Verdict { good, not_finite, spike };

  // What a checkpoint saves.
  struct State {
    std::deque<double> recent;  // good losses
    int64_t bad = 0;            // in a row
  };

  // `overflows_are_normal`: fp16 with a loss scale, where a skipped step with a finite loss is part of the
  // search for the scale.
  LossWatch(const config::WatchConfig& config, bool overflows_are_normal)
      : config_(config), overflows_are_normal_(overflows_are_normal) {}

  // Adds the next step. `skipped`: its gradient was not finite.
  Verdict look(double loss, bool skipped);
  // Mean of the last good losses; 0 when there are none.
  double mean() const;
  // Whether there were as many bad steps in a row as the config allows.
  bool give_up() const { return config_.max_bad_steps > 0 && state_.bad >= config_.max_bad_steps; }
  int64_t bad_in_a_row() const { return state_.bad; }

  const State& state() const { return state_; }
  void restore(State state) { state_ = std::move(state); }

 private:
  static constexpr size_t kWarmUp = 10, kWindow = 50;  // good losses: before spikes are reported, in the mean

  Verdict judge(double loss, bool skipped) const;

  config::WatchConfig config_;
  bool overflows_are_normal_;
  State state_;
};

}  // namespace zeno::train
