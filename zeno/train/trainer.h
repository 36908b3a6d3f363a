// A training run: model folder and data in, losses on the way, model folder out.
#pragma once

#include <memory>

#include "zeno/comm/world.h"
#include "zeno/config/config_parser.h"
#include "zeno/report/run_summary.h"
#include "zeno/train/saving/folder_lock.h"

namespace zeno::train {

// One rank's part of a run. Collective; all ranks return the same. Rank 0 leaves the lock on --out in `lock`,
// which must outlive the world: other ranks may still write when this one has failed.
report::RunSummary train_rank(config::ParsedConfig parsed, comm::World& world,
                              std::unique_ptr<const FolderLock>& lock);

// Starts the ranks a config asks for (launch.h) and trains. While it runs, Ctrl-C, SIGTERM and SIGUSR1 end
// the run after the step under way, and the model is saved (interrupt.h).
report::RunSummary train(config::ParsedConfig parsed);

}  // namespace zeno::train
