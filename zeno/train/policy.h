// From the user's configuration to what the engine takes.
#pragma once

#include "zeno/kernels/optimizer.h"
#include "zeno/train/config.h"
#include "zeno/zero/engine.h"

namespace zeno::train {

// --seq-len, or the model's context up to a length that is practical on any machine.
int64_t sequence_length(const RunConfig& run, int64_t max_positions);

zero::EngineOptions engine_options(const TrainConfig& config, int64_t seq_len);

// Hyperparameters of the optimizer step that follows `completed` steps.
OptimizerHyper hyper_after(const TrainConfig& config, int64_t completed);

}  // namespace zeno::train
