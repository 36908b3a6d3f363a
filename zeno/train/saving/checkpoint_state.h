// Maps the state of an engine to checkpoints: which states and tensors there are, which ranges a rank has,
// and how an engine loads them. Does not depend on the mesh or stage of the run that wrote them.
#pragma once

#include <vector>

#include "zeno/checkpoint/checkpoint.h"
#include "zeno/zero/engine.h"

namespace zeno::train {

std::vector<checkpoint::StateKind> saved_states(const zero::Engine& engine);
std::vector<checkpoint::StateTensor> saved_tensors(const zero::Engine& engine);
// One extent for each piece of the engine's snapshot, in the same order.
std::vector<checkpoint::Extent> saved_extents(const zero::Engine& engine);

// Fills masters, moments and the compute copy of every trainable parameter. Error(usage) if the checkpoint is
// of another model or another optimizer. Reads only what this rank keeps, a piece at a time.
void restore(const checkpoint::Checkpoint& from, zero::Engine& engine);

}  // namespace zeno::train
