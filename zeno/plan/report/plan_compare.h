// DeepSpeed's estimate beside the plan of the same setting.
#pragma once

#include <vector>

#include "zeno/plan/plan_rows.h"
#include "zeno/plan/report/deepspeed_estimate.h"

namespace zeno::plan {

struct Comparison {
  DeepSpeedEstimate theirs;
  PlanRow ours;

  // Of our plan on the device: what their estimate has no term for. Gathered slots are in theirs at stage 3.
  size_t left_out() const;
};

// The settings that DeepSpeed's estimator knows, with recompute and micro-batch as in `setting`.
std::vector<Comparison> compare_deepspeed(const PlanModel& model, const zero::EngineOptions& options,
                                          const Setting& setting, int node_ranks);

}  // namespace zeno::plan
