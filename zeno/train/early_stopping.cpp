#include "zeno/train/early_stopping.h"

#include <cmath>

namespace zeno::train {

double EarlyStopping::score(const report::Evaluation& evaluation) const {
  return config_.best_metric == config::BestMetric::accuracy ? evaluation.accuracy : -evaluation.loss;
}

bool EarlyStopping::add(const report::Evaluation& evaluation) {
  const bool finite = std::isfinite(evaluation.loss);
  const double now = score(evaluation);
  const bool better = finite && (!state_.best || now > score(*state_.best));
  // Small improvements count together once they add up to more than delta.
  if (finite && (!state_.best || now > state_.reference + config_.early_stopping_delta)) {
    state_.reference = now;
    state_.waited = 0;
  } else {
    ++state_.waited;
  }
  if (better) state_.best = evaluation;
  return better;
}

}  // namespace zeno::train
