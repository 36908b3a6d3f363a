// Why a setting was chosen, in a few lines for people.
#pragma once

#include <string>
#include <vector>

#include "zeno/plan/advice.h"

namespace zeno::plan {

// A step on a machine: its length, the share of computation, and what it waits for. One line each.
std::vector<std::string> describe_time(const StepTime& time, const std::string& machine);

// `rows` are all that were planned, also those that do not fit.
std::vector<std::string> reasons_for(const AdviceQuestion& question, const Advice& advice,
                                     const std::vector<PlanRow>& rows);

}  // namespace zeno::plan
