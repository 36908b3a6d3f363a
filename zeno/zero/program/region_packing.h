// Where the regions of a program lie: one pool for each tier and purpose, bytes shared by regions whose lives
// do not meet.
#pragma once

#include "zeno/zero/program/program.h"

namespace zeno::zero {

// Sets the offset of every region and the size of every pool. Deterministic, so all ranks agree. Time grows
// with the number of regions and of those that live at once, not with the square of all.
void pack_regions(Program& program);

}  // namespace zeno::zero
