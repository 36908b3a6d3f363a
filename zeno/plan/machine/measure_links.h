// What ranks of one host send each other, measured with ranks as threads and the collectives of a step.
#pragma once

#include "zeno/plan/machine/machine.h"

namespace zeno::plan {

// `ranks` (two or more) at once, each with one thread for it as in a step, or with its own GPU:
// reduce-scatter and all-gather of a vector of `bytes`, then of next to nothing, for the latency, of which a
// collective is taken to have one for every other rank. Blocks.
Link measure_inside(Device::Kind kind, int ranks, size_t bytes);

}  // namespace zeno::plan
