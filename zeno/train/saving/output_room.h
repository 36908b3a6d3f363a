// Checks before the first step whether the output of a run fits on its disk.
#pragma once

#include <cstddef>

#include "zeno/config/config.h"
#include "zeno/zero/engine.h"

namespace zeno::train {

// Error(io) if the disk of --out has no room for a result of this many bytes; a warning if only the
// checkpoints do not fit. Call it once the engine has reserved its own space on the disk.
void check_output_room(const config::RunConfig& run, const zero::Engine& engine, size_t result);

}  // namespace zeno::train
