// When sharded parameters are gathered and released, parameters in other tiers fetched to the device, and
// parameters in NF4 decoded. In each interval a group is resident from compute step `first` to `last`, and
// its gather is issued before step `issue`, as far ahead of `first` as prefetch allows.
#pragma once

#include <vector>

#include "zeno/zero/program/schedule.h"

namespace zeno::zero {

enum class Gathered {
  never,         // this rank has all of it: only fetched or decoded
  into_region,   // for this interval
  into_storage,  // once per step, into the group's own storage, where it stays
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
