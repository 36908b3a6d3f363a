// `zeno plan --sweep`: one setting on more and more ranks, with failures.
#pragma once

#include "cli/plan_question.h"

namespace zeno::cli {

void show_sweep(const PlanQuestion& question, const PlanFlags& flags);

}  // namespace zeno::cli
