// `zeno plan --sweep`: one setting on more and more ranks, with failures.
#pragma once

#include "cli/plan_flags.h"

namespace zeno::cli {

void show_sweep(const plan::PlanQuestion& question, const PlanFlags& flags);

}  // namespace zeno::cli
