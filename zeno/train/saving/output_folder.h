// What an output folder holds already, and whether a run may write there.
#pragma once

#include <memory>

#include "zeno/comm/world.h"
#include "zeno/config/config.h"
#include "zeno/train/saving/folder_lock.h"

namespace zeno::train {

// Collective: takes the folder for this run. Rank 0 puts the lock into `lock`; the others do not touch it.
void lock_output_folder(const config::RunConfig& run, comm::World& world,
                        std::unique_ptr<const FolderLock>& lock);

// Collective: Error(usage) where the run would write over something that is not its own to replace. `lock` is
// rank 0's.
void check_output_folder(const config::TrainConfig& config, comm::World& world,
                         const std::unique_ptr<const FolderLock>& lock);

}  // namespace zeno::train
