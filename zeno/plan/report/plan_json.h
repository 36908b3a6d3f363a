// A plan for programs.
//   {"params", "ranks", "limits": {"device", "host"}, the chosen setting and its bytes at the top:
//    "stage", "offload", "recompute", "micro_batch", "flags", "model_states_bytes", "bytes": {tier: {purpose,
//    "total"}}, and where known "fits", "missing_device_bytes", "missing_host_bytes", "step_seconds",
//    "tokens_per_s"; "rows": [the same for each row], "deepspeed": [...]}
#pragma once

#include <string>

#include "zeno/plan/report/plan_report.h"

namespace zeno::plan {

std::string plan_json(const PlanReport& report);

}  // namespace zeno::plan
