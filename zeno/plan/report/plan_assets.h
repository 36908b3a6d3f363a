// The script of the plan's page: assets/plan.js, made into this program by CMake.
#pragma once

#include <string_view>

namespace zeno::plan {

extern const std::string_view kPlanScript;

}  // namespace zeno::plan
