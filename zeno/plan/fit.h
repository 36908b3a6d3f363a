// When a run does not fit: the smallest change that does, found by planning the alternatives.
#pragma once

#include "zeno/plan/offload.h"

namespace zeno::plan {

// Throws Error(memory) when the plan of one rank exceeds a limit, naming what it needs and the first of these
// changes that fits: gradients and parameters sharded further, recompute, optimizer states on the host of a
// GPU, a smaller micro-batch; or states on disk where the host is too small.
void require_fit(const nn::LayerList& model, const zero::EngineOptions& options, int world,
                 MemoryLimits limits);

}  // namespace zeno::plan
