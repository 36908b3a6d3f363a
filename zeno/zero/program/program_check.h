// Proves properties of a step program without running it. Called at start (it costs milliseconds) and by
// tests.
#pragma once

#include "zeno/zero/program/program.h"

namespace zeno::zero {

// Throws an internal Error naming the first instruction that breaks a rule:
// - regions of one pool that live at the same time do not share bytes, and lie inside the pool;
// - two instructions that touch the same bytes, or the same stored state, are ordered by lanes and waits;
// - an instruction touches regions only while they live;
// - what an instruction reads of passing memory was written before, in the same step;
// - parameters are resident when used: bound to a region that gathers have filled since it came to life, or
//   to storage that is complete; every gather puts together parts that are there;
// - gradients are summed over all ranks that see other data before they are scanned;
// - an evaluation changes no gradients and no states;
// - gradients are cleared before they are added to, and every chunk that is trained is updated exactly once.
void check_program(const Program& program, const UnitTable& units);

}  // namespace zeno::zero
