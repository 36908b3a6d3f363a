// Proves properties of a step program without running it. Called at start (it costs milliseconds) and by
// tests.
#pragma once

#include "zeno/zero/program.h"

namespace zeno::zero {

// Throws an internal Error naming the first instruction that breaks a rule:
// - regions of one pool that live at the same time do not share bytes, and lie inside the pool;
// - two instructions that touch the same bytes, or the same stored state, are ordered by lanes and waits;
// - an instruction touches regions only while they live;
// - layers read activations that were computed, or have come back from the host;
// - parameters are resident when used: bound to a region that a gather has filled completely since it came to
// life,
//   or to storage that is complete;
// - gradients are cleared before they are added to, and every trainable group is reduced (where ranks must
// agree)
//   and updated exactly once.
void check_program(const Program& program, const UnitTable& units, const Policy& policy);

}  // namespace zeno::zero
