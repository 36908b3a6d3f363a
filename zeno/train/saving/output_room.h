// Whether what a run will write fits where it is to go: better known before the first step than after the
// last one.
#pragma once

#include <cstddef>

#include "zeno/config/config.h"
#include "zeno/zero/engine.h"

namespace zeno::train {

// Error(io) if the disk of --out has no room for a result of this many bytes, a warning if only the
// checkpoints do not fit. Call when the engine has taken what it needs of the disk.
void check_output_room(const config::RunConfig& run, const zero::Engine& engine, size_t result);

}  // namespace zeno::train
