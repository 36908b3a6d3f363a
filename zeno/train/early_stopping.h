// Tracks which evaluation of a run was best, and when to stop waiting for a better one. Plain values. Every
// rank has one; all see the same evaluations, so all decide the same.
#pragma once

#include <cstdint>
#include <optional>

#include "zeno/config/config.h"
#include "zeno/report/metrics.h"

namespace zeno::train {

class EarlyStopping {
 public:
  // What a checkpoint saves.
  struct State {
    std::optional<report::Evaluation> best;
    double reference = 0;  // the score that an evaluation has to beat by delta to count as an improvement
    int64_t waited = 0;    // evaluations since then
  };

  explicit EarlyStopping(const config::EvalConfig& config) : config_(config) {}

  // Returns whether it is better than all before. A loss that is not finite never is.
  bool add(const report::Evaluation& evaluation);
  // Whether as many evaluations in a row as the config allows brought no improvement by more than its delta.
  bool give_up() const { return config_.early_stopping > 0 && state_.waited >= config_.early_stopping; }
  const std::optional<report::Evaluation>& best() const { return state_.best; }

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  double score(const report::Evaluation& evaluation) const;  // higher is better

  config::EvalConfig config_;
  State state_;
};

}  // namespace zeno::train
