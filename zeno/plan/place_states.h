// Where states live and what is recomputed, if the config leaves it to the planner.
#pragma once

#include "zeno/config/config.h"
#include "zeno/plan/offload.h"

namespace zeno::plan {

// Completes `options` by what follows from the memory there is: recompute and homes of states if the config
// says auto, and how much may pass through the device at once.
void place_states(const config::TrainConfig& config, const nn::LayerList& layers,
                  zero::EngineOptions& options, MemoryLimits limits, bool trains);

}  // namespace zeno::plan
