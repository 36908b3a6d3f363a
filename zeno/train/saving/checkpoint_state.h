// The state of an engine in the words of checkpoints: which states and tensors there are, which ranges a rank
// has, and how an engine loads them. Needs nothing of the shape of the run that wrote them.
#pragma once

#include <vector>

#include "zeno/checkpoint/checkpoint.h"
#include "zeno/zero/engine.h"

namespace zeno::train {

std::vector<checkpoint::StateKind> saved_states(const zero::Engine& engine);
std::vector<checkpoint::StateTensor> saved_tensors(const zero::Engine& engine);
// One for each piece of the engine's snapshot, in its order.
std::vector<checkpoint::Extent> saved_extents(const zero::Engine& engine);

// Fills masters, moments and the compute copy of every trainable parameter. Error(usage) when the checkpoint
// is of another model or another optimizer. Reads what this rank keeps, a piece at a time.
void restore(const checkpoint::Checkpoint& from, zero::Engine& engine);

}  // namespace zeno::train
