// What a config leaves open for the planner to choose.
#pragma once

#include "zeno/plan/plan_rows.h"
#include "zeno/train/config_parser.h"

namespace zeno::train {

// Stages, homes of states, recompute and micro-batches that flags and file do not fix; those that they fix
// are taken from `given`. Disks only where a folder is named or `disks` says so.
plan::PlanChoices open_choices(const ParsedConfig& parsed, const plan::Setting& given, bool batch_open,
                               Device device, int world, plan::MemoryLimits limits, bool disks);

// For --print-config: values that the planner sets when the run starts are shown as open.
void mark_open(ParsedConfig& parsed);

}  // namespace zeno::train
