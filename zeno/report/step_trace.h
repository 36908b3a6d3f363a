// The last step of every rank as a Perfetto trace: the step program with times.
#pragma once

#include "zeno/base/file.h"
#include "zeno/comm/world.h"
#include "zeno/zero/engine.h"

namespace zeno::report {

// Collective; rank 0 writes.
void write_step_trace(const Path& path, const zero::Engine& engine, comm::World& world);

}  // namespace zeno::report
