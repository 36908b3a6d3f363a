// The first sample of a run as the model will see it, shown when training starts in a terminal.
#pragma once

#include "zeno/config/config.h"
#include "zeno/train/dataset_options.h"

namespace zeno::train {

// For rank 0. Does nothing unless stderr is a terminal and the data comes from files. Errors here do not end
// the run.
void show_first_sample(const config::TrainConfig& config, const RunData& data, int64_t seq_len);

}  // namespace zeno::train
