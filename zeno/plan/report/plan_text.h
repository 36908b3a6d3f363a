// A plan for people at a terminal: tables with bars, as wide as the terminal, in colour if it supports it.
#pragma once

#include <string>

#include "zeno/plan/report/plan_bars.h"
#include "zeno/plan/report/plan_report.h"

namespace zeno::plan {

// `all`: every row of the table, else the best of each stage and home of states.
std::string plan_text(const PlanReport& report, bool all, TextStyle style);

}  // namespace zeno::plan
