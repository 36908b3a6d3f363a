// A training run: model folder and data in, losses on the way, model folder out.
#pragma once

#include <memory>

#include "zeno/comm/world.h"
#include "zeno/train/config_parser.h"
#include "zeno/train/folder_lock.h"
#include "zeno/train/run_summary.h"

namespace zeno::train {

// One rank's part of a run. Collective; all ranks return the same. Rank 0 leaves the lock on --out in `lock`,
// which must outlive the world: other ranks may still write when this one has failed.
RunSummary train_rank(ParsedConfig parsed, comm::World& world, std::unique_ptr<const FolderLock>& lock);

// Starts the ranks a config asks for (launch.h) and trains. While it runs, Ctrl-C, SIGTERM and SIGUSR1 end
// the run after the step under way, and the model is saved (interrupt.h).
RunSummary train(ParsedConfig parsed);

}  // namespace zeno::train
