#include "zeno/train/early_stopping.h"

#include <cmath>

namespace zeno::train {

double EarlyStopping::score(const Evaluation& evaluation) const {
  return config_.best_metric == BestMetric::accuracy ? evaluation.accuracy : -evaluation.loss;
}

bool EarlyStopping::add(const Evaluation& evaluation) {
  const bool finite = std::isfinite(evaluation.loss);
  const double now = score(evaluation);
  const bool better = finite && (!best_ || now > score(*best_));
  // Many small improvements that add up to more than delta count as one.
  if (finite && (!best_ || now > reference_ + config_.early_stopping_delta)) {
    reference_ = now;
    waited_ = 0;
  } else {
    ++waited_;
  }
  if (better) best_ = evaluation;
  return better;
}

}  // namespace zeno::train
