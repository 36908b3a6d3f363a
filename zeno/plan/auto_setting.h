// The planner chooses what the user left open; --no-auto: nobody does.
#pragma once

#include "zeno/comm/world.h"
#include "zeno/config/config_parser.h"
#include "zeno/model/config.h"

namespace zeno::plan {

// Collective; rank 0 decides. Sets stage, homes of states, recompute, micro-batch, accumulation and order to
// what is predicted to be fastest on this machine, where neither flags nor file say them, and logs what was
// chosen and why. The batch of a step stays what is given; if not given, it follows from the `sequences` of
// `seq_len` tokens that the data has (default_batch). Where nothing fits, the plain setting is left, for the
// refusal that follows. Before the batch is resolved.
void choose_setting(config::ParsedConfig& parsed, const model::ModelConfig& model, int64_t seq_len,
                    int64_t sequences, comm::World& world);

}  // namespace zeno::plan
