// Starts the ranks of a run and combines their errors.
#pragma once

#include <functional>

#include "zeno/comm/world.h"
#include "zeno/config/config.h"

namespace zeno::train {

// Processes of a launcher (mpirun, srun) each become one rank; otherwise `ranks` threads of this process.
// Runs `body` on each; with `catch_signals`, signals are requests to stop while it runs (interrupt.h).
// Returns when all are done; throws the first error.
void run_ranks(const config::RunConfig& run, bool catch_signals,
               const std::function<void(comm::World&)>& body);

// Fills in the cache folder if the config does not name one.
void set_folders(config::RunConfig& run);

}  // namespace zeno::train
