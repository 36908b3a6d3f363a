// The flags of `zeno plan`, and what they ask.
#pragma once

#include <string>

#include "cli/arch_flags.h"
#include "cli/run_flags.h"
#include "zeno/plan/plan_question.h"

namespace zeno::cli {

struct PlanFlags {
  RunFlags run;
  ArchFlags arch;
  plan::PlanPlace place;
  std::string params, compare, html;
  std::string goal, write_config;  // advice
  std::string sweep;               // numbers of ranks by comma, or "all"
  double failure_hours = 50'000;   // of a device, between two failures
  double restart_s = 300;
  std::string command;  // as it was typed
  bool json = false, all = false;
};

// Exactly one of --model, --arch and --params must be there. Throws Error(usage) or, for a folder,
// Error(data).
plan::PlanQuestion question_of(const PlanFlags& flags);

}  // namespace zeno::cli
