// What an output folder holds already, and whether a run may write there.
#pragma once

#include "zeno/train/config.h"

namespace zeno::train {

// Is there a model, or an adapter, that a run has left?
bool has_result(const RunConfig& run);

// Error(usage) where the run would write over something that is not its own to replace. `waited`: another run
// was writing there until a moment ago. The caller holds the folder (folder_lock.h).
void check_output_folder(const TrainConfig& config, bool waited);

}  // namespace zeno::train
