// Which evaluation of a run was best, and when to give up waiting for a better one. Plain values; every rank
// keeps one and, since all see the same evaluations, all decide alike.
#pragma once

#include <cstdint>
#include <optional>

#include "zeno/train/config.h"

namespace zeno::train {

struct Evaluation {
  int64_t step = 0;
  double loss = 0, accuracy = 0;
};

class EarlyStopping {
 public:
  explicit EarlyStopping(const EvalConfig& config) : config_(config) {}

  // True: better than all before. A loss that is not finite never is.
  bool add(const Evaluation& evaluation);
  // As many evaluations in a row as the config allows have brought no improvement of more than its delta.
  bool give_up() const { return config_.early_stopping > 0 && waited_ >= config_.early_stopping; }
  const std::optional<Evaluation>& best() const { return best_; }

 private:
  double score(const Evaluation& evaluation) const;  // higher is better

  EvalConfig config_;
  std::optional<Evaluation> best_;
  double reference_ = 0;  // the score that an improvement has to beat by delta
  int64_t waited_ = 0;    // evaluations since then
};

}  // namespace zeno::train
