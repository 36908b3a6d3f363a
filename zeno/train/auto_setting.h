// `zeno train --auto`: the planner chooses what the user left open.
#pragma once

#include "zeno/comm/world.h"
#include "zeno/model/config.h"
#include "zeno/train/config_parser.h"

namespace zeno::train {

// Collective; rank 0 decides. Sets stage, homes of states, recompute, micro-batch, accumulation and order to
// what is predicted to be fastest on this machine, where neither flags nor file say them, and logs why. A
// batch of a step that is given stays what it is. Before the batch is resolved.
void choose_setting(ParsedConfig& parsed, const model::ModelConfig& model, comm::World& world);

}  // namespace zeno::train
