// What `zeno plan` answers: the setting of a question with its memory and time, or a table of settings.
#pragma once

#include <string>

#include "zeno/plan/plan_question.h"
#include "zeno/plan/report/plan_report.h"

namespace zeno::plan {

struct AnswerOptions {
  bool all = false;        // every row of the table, also where the question fixes one
  bool deepspeed = false;  // DeepSpeed's own estimate, for comparison
  std::string command;     // as it was typed
};

// Throws Error(usage) if a choice is left to the planner and there are no limits to choose by.
PlanReport answer(const PlanQuestion& question, const AnswerOptions& how);

}  // namespace zeno::plan
