// `zeno plan --goal`: the setting to use, why, and how to run it.
#pragma once

#include "cli/plan_flags.h"

namespace zeno::cli {

void show_advice(const plan::PlanQuestion& question, const PlanFlags& flags);

}  // namespace zeno::cli
