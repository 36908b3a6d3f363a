// When sharded parameters are gathered and released, parameters of other tiers brought to the device, and
// parameters in NF4 decoded. An interval says: the
// group is resident from its first to its last compute step, and its gather is issued before step `issue`
// (ahead of `first` by what prefetch allows).
#pragma once

#include <vector>

#include "zeno/zero/program/schedule.h"

namespace zeno::zero {

enum class Gathered {
  never,         // all of it is this rank's: only brought, or decoded
  into_region,   // for this interval
  into_storage,  // once per step into the group's own storage, and kept
};

struct Residency {
  int group = 0;
  int first = 0, last = 0;  // indices of compute steps
  int issue = 0;
  Gathered gathered = Gathered::into_region;
};

// Groups whose parameters a compute step reads.
std::vector<int> param_groups(const CompileInput& input, const ComputeStep& step);

// In the order in which gathers are issued.
std::vector<Residency> plan_residency(const CompileInput& input, const std::vector<ComputeStep>& steps);

}  // namespace zeno::zero
