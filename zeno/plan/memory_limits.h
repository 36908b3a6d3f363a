// What a rank of this machine may use.
#pragma once

#include "zeno/config/config.h"
#include "zeno/plan/offload.h"

namespace zeno::plan {

// Bytes that a rank may use, when `local_size` ranks of this host share its memory and devices.
MemoryLimits memory_limits(const config::RunConfig& run, Device device, int local_size);

}  // namespace zeno::plan
