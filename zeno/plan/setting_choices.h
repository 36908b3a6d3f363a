// What a config leaves open for the planner to choose.
#pragma once

#include "zeno/config/config_parser.h"
#include "zeno/plan/plan_rows.h"

namespace zeno::plan {

// Stages, homes of states, recompute and micro-batches that flags and file do not fix; those that they fix
// are taken from `given`. Disks only where a folder is named or `disks` says so.
PlanChoices open_choices(const config::ParsedConfig& parsed, const Setting& given, bool batch_open,
                         Device device, const comm::Mesh& mesh, MemoryLimits limits, bool disks);

}  // namespace zeno::plan
