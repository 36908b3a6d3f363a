// What of a model is trained: everything, or adapters. From the user's configuration to what the model takes.
#pragma once

#include "zeno/config/config.h"
#include "zeno/model/layers.h"

namespace zeno::config {

// Adapters as the flags say, or those of the adapter folder to continue training, whose options win. Throws a
// usage Error where both say something and differ, and where something is asked for that only adapters have.
// `trains` false: for evaluation, where a base in 4 bits needs no adapter.
model::Tuning tuning_of(const TrainConfig& config, bool trains = true);

}  // namespace zeno::config
