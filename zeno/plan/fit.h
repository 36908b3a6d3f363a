// When a run does not fit: the smallest change that does, found by planning the alternatives.
#pragma once

#include <functional>
#include <string>

#include "zeno/zero/engine.h"

namespace zeno::plan {

// Throws Error(memory) when the plan of one rank exceeds `limit`, naming what it needs and the first of these
// changes that fits: gradients and parameters sharded further, recompute, a smaller micro-batch.
void require_fit(const nn::LayerList& model, const zero::EngineOptions& options, int world, size_t limit);

}  // namespace zeno::plan
