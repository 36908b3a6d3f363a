// Places the regions of a program in memory: one pool for each tier and purpose, where regions share bytes if
// their lifetimes do not overlap.
#pragma once

#include "zeno/zero/program/program.h"

namespace zeno::zero {

// Sets the offset of every region and the size of every pool. Deterministic, so all ranks agree. The time
// depends on the number of regions and how many are alive at once; it is not quadratic in the number of
// regions.
void pack_regions(Program& program);

}  // namespace zeno::zero
