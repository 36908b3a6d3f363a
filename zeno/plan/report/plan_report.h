// The whole answer of `zeno plan`, as plain values; plan_text.h, plan_json.h and plan_page.h show it.
#pragma once

#include <string>
#include <vector>

#include "zeno/plan/plan_rows.h"
#include "zeno/plan/report/plan_compare.h"
#include "zeno/plan/timeline.h"

namespace zeno::plan {

struct PlanReport {
  std::string title;               // "llama of 6.74 billion parameters on 64 ranks"
  std::vector<std::string> notes;  // what was taken for granted; one sentence each
  std::string command;             // as it was typed
  double params = 0;
  int ranks = 1, node_ranks = 1;
  MemoryLimits limits;  // of one rank; 0: not known
  PlanRow chosen;       // the setting that flags and config give
  // Its stages where there is a pipeline and only it was asked for, and which of them needs most of each
  // tier.
  std::vector<StageBytes> stages;
  std::array<int, kTiers.size()> neediest{};
  std::optional<StepTime> time;  // of it, where the machine is known and only it was asked for
  std::vector<PlanRow> rows;     // of the table, best first; empty: only the chosen one was asked for
  std::vector<Comparison> deepspeed;
};

}  // namespace zeno::plan
