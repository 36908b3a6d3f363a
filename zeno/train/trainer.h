// A training run: model folder and data in, losses on the way, model folder out.
#pragma once

#include "zeno/comm/world.h"
#include "zeno/train/config_parser.h"
#include "zeno/train/run_summary.h"

namespace zeno::train {

// One rank's part of a run. Collective; all ranks return the same.
RunSummary train_rank(ParsedConfig parsed, comm::World& world);

// Starts the ranks a config asks for (launch.h) and trains. While it runs, Ctrl-C, SIGTERM and SIGUSR1 end
// the run after the step under way, and the model is saved (interrupt.h).
RunSummary train(ParsedConfig parsed);

}  // namespace zeno::train
