#include "zeno/zero/residency.h"

#include <algorithm>

namespace zeno::zero {
namespace {

Gather gather_of(const CompileInput& input, const Group& group) {
  if (input.world == 1) return Gather::none;
  if (input.policy.params == Placement::sharded && !group.persistent) return Gather::into_region;
  // Kept whole everywhere: only a sharded update makes it stale.
  const bool stale = group.trainable && input.policy.optimizer == Placement::sharded;
  return stale ? Gather::into_storage : Gather::none;
}

// Elements gathered by other groups' intervals that start between two steps.
int64_t distance(const std::vector<Residency>& intervals, const UnitTable& units, int from, int to) {
  int64_t sum = 0;
  for (const Residency& r : intervals) {
    if (r.gather != Gather::into_storage && r.first > from && r.first < to)
      sum += units.groups[r.group].padded();
  }
  return sum;
}

// Joins consecutive intervals of a group when the way between them is short.
void join_close(std::vector<Residency>& intervals, const CompileInput& input) {
  if (input.policy.reuse_distance <= 0) return;
  const std::vector<Residency> all = intervals;
  std::vector<Residency> joined;
  for (const Residency& r : all) {
    auto before =
        std::find_if(joined.rbegin(), joined.rend(), [&](const Residency& j) { return j.group == r.group; });
    if (r.gather != Gather::into_storage && before != joined.rend() &&
        distance(all, input.units, before->last, r.first) <= input.policy.reuse_distance) {
      before->last = r.last;
    } else {
      joined.push_back(r);
    }
  }
  intervals = std::move(joined);
}

// Moves gathers ahead of their use, in order, while what is ahead fits the prefetch budget.
void prefetch(std::vector<Residency>& intervals, const CompileInput& input, int steps) {
  const auto size_of_gather = [&](const Residency& r) {
    const Group& group = input.units.groups[r.group];
    return r.gather == Gather::none && !group.moves ? 0 : group.padded();
  };
  size_t next = 0;
  for (int step = 0; step < steps; ++step) {
    int64_t ahead = 0, live = 0;
    for (size_t i = 0; i < next; ++i) {
      const Residency& r = intervals[i];
      const int64_t size = size_of_gather(r);
      if (r.first > step) ahead += size;
      if (r.last >= step && r.gather != Gather::into_storage) live += size;
    }
    for (; next < intervals.size(); ++next) {
      Residency& r = intervals[next];
      const int64_t size = size_of_gather(r);
      const bool fits = ahead + size <= input.policy.prefetch && live + size <= input.policy.max_live;
      if (r.first > step && !fits) break;
      r.issue = step;
      if (r.first > step) ahead += size;
      if (r.gather != Gather::into_storage) live += size;
    }
    if (next == intervals.size()) break;
  }
}

}  // namespace

std::vector<int> param_groups(const CompileInput& input, const ComputeStep& step) {
  const bool reads = step.op != Op::backward || input.model.layers[step.layer]->backward_needs_params();
  return reads ? input.units.layer_groups[step.layer] : std::vector<int>{};
}

std::vector<Residency> plan_residency(const CompileInput& input, const std::vector<ComputeStep>& steps) {
  std::vector<Residency> intervals;
  std::vector<int> open(input.units.groups.size(), -1);  // latest interval of each group
  for (int s = 0; s < int(steps.size()); ++s) {
    for (int g : param_groups(input, steps[s])) {
      const Gather gather = gather_of(input, input.units.groups[g]);
      if (gather == Gather::none && !input.units.groups[g].nf4 && !input.units.groups[g].moves) continue;
      const bool same = open[g] >= 0 && (gather == Gather::into_storage ||
                                         steps[intervals[open[g]].last].phase == steps[s].phase);
      if (same) {
        intervals[open[g]].last = s;
      } else {
        open[g] = int(intervals.size());
        intervals.push_back({g, s, s, s, gather});
      }
    }
  }
  join_close(intervals, input);
  prefetch(intervals, input, int(steps.size()));
  return intervals;
}

}  // namespace zeno::zero
