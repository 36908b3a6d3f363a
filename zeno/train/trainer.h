// A training run: model folder and data in, losses on the way, model folder out.
#pragma once

#include "zeno/comm/world.h"
#include "zeno/train/config_parser.h"

namespace zeno::train {

// One rank's part of a run. Collective.
void train_rank(ParsedConfig parsed, comm::World& world);

// Starts the ranks a config asks for and trains: processes of a launcher (mpirun, srun) each become one rank;
// otherwise `ranks` threads of this process. Returns when all are done; throws the first error.
void train(ParsedConfig parsed);

}  // namespace zeno::train
