// Whether a run may write to an output folder, given what it already holds.
#pragma once

#include <memory>

#include "zeno/comm/world.h"
#include "zeno/config/config.h"
#include "zeno/train/saving/folder_lock.h"

namespace zeno::train {

// Collective: locks the folder for this run. Rank 0 puts the lock into `lock`; the others do not touch it.
void lock_output_folder(const config::RunConfig& run, comm::World& world,
                        std::unique_ptr<const FolderLock>& lock);

// Collective: Error(usage) if the run would overwrite something that it may not replace. `lock` is rank 0's.
void check_output_folder(const config::TrainConfig& config, comm::World& world,
                         const std::unique_ptr<const FolderLock>& lock);

}  // namespace zeno::train
