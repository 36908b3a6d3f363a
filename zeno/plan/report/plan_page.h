// The plan as a page that needs nothing but a browser: bars by purpose for every tier, a table of all rows,
// and DeepSpeed's estimate if it was requested.
#pragma once

#include <string>

#include "zeno/base/file.h"
#include "zeno/plan/report/plan_report.h"

namespace zeno::plan {

std::string plan_page(const PlanReport& report);
// Writes or replaces the file in one step.
void write_page(const Path& file, const PlanReport& report);

}  // namespace zeno::plan
