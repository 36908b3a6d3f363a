// Which evaluation of a run was best, and when to give up waiting for a better one. Plain values; every rank
// keeps one and, since all see the same evaluations, all decide alike.
#pragma once

#include <cstdint>
#include <optional>

#include "zeno/config/config.h"
#include "zeno/report/metrics.h"

namespace zeno::train {

class EarlyStopping {
 public:
  // Everything a checkpoint has to keep.
  struct State {
    std::optional<report::Evaluation> best;
    double reference = 0;  // the score that an improvement has to beat by delta
    int64_t waited = 0;    // evaluations since then
  };

  explicit EarlyStopping(const config::EvalConfig& config) : config_(config) {}

  // True: better than all before. A loss that is not finite never is.
  bool add(const report::Evaluation& evaluation);
  // As many evaluations in a row as the config allows have brought no improvement of more than its delta.
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
