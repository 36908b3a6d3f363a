// The planner chooses what the user left open, unless --no-auto is given.
#pragma once

#include "zeno/comm/world.h"
#include "zeno/config/config_parser.h"
#include "zeno/model/config.h"

namespace zeno::plan {

// Collective; rank 0 decides. Sets stage, homes of states, recompute, micro-batch, accumulation and order to
// the predicted fastest setting on this machine, unless flags or file set them, and logs what was chosen and
// why. A given batch per step stays; if not given, it follows from the `sequences` of `seq_len` tokens that
// the data has (default_batch). Where nothing fits, the plain setting is left, for the refusal that follows.
// Before the batch is resolved.
void choose_setting(config::ParsedConfig& parsed, const model::ModelConfig& model, int64_t seq_len,
                    int64_t sequences, comm::World& world);

}  // namespace zeno::plan
