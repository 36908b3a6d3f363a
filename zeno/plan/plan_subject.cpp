#include "zeno/plan/plan_subject.h"

#include <algorithm>
#include <utility>

#include "zeno/plan/estimate.h"

namespace zeno::plan {

PlanSubject subject_of_folder(const Path& folder) { return {model::load_config(folder), {}, false}; }

PlanSubject subject_of_shape(model::InitOptions options, bool positions_given, int64_t seq_len) {
  if (!positions_given) options.max_positions = std::max(options.max_positions, seq_len);
  return {model::make_config(options), {}, true};
}

PlanSubject subject_of_size(double params, int64_t seq_len, int64_t sharing) {
  PlanSubject subject = subject_of_shape(shape_of_size(params, sharing), false, seq_len);
  subject.params = params;
  return subject;
}

}  // namespace zeno::plan
