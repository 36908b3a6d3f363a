// When a run does not fit: the smallest change that does, found by planning the alternatives.
#pragma once

#include "zeno/plan/offload.h"

namespace zeno::plan {

// Throws Error(memory) if the plan of one rank exceeds a limit, naming what it needs and the smallest set of
// changes that fits: gradients and parameters sharded further, recompute, states in host memory, smaller
// micro-batches, states on disk, shorter sequences; or else the number of ranks that would do.
void require_fit(const nn::LayerList& model, const zero::EngineOptions& options, MemoryLimits limits);

// So many ranks, more than those of the options and in more groups like theirs, that it fits with everything
// sharded and recomputed, one sequence at a time; 0: none.
int ranks_that_fit(const nn::LayerList& model, zero::EngineOptions options, MemoryLimits limits);

}  // namespace zeno::plan
