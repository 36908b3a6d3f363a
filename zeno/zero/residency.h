// When sharded parameters are gathered and released. An interval says: the group is resident from its first
// to its last compute step, and its gather is issued before step `issue` (ahead of `first` by what prefetch
// allows).
#pragma once

#include <vector>

#include "zeno/zero/schedule.h"

namespace zeno::zero {

struct Residency {
  int group = 0;
  int first = 0, last = 0;  // indices of compute steps
  int issue = 0;
  bool in_storage = false;  // gathered once per step into the group's own storage, and kept
};

// Groups whose parameters a compute step reads.
std::vector<int> param_groups(const CompileInput& input, const ComputeStep& step);

// In the order in which gathers are issued.
std::vector<Residency> plan_residency(const CompileInput& input, const std::vector<ComputeStep>& steps);

}  // namespace zeno::zero
