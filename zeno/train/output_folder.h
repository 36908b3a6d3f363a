// What an output folder holds already, and whether a run may write there.
#pragma once

#include <memory>

#include "zeno/comm/world.h"
#include "zeno/train/config.h"
#include "zeno/train/folder_lock.h"

namespace zeno::train {

// Collective: takes the folder for this run. Rank 0 has the lock, others none.
std::unique_ptr<const FolderLock> lock_output_folder(const RunConfig& run, comm::World& world);

// Collective: Error(usage) where the run would write over something that is not its own to replace. `lock` as
// above.
void check_output_folder(const TrainConfig& config, const FolderLock* lock, comm::World& world);

}  // namespace zeno::train
