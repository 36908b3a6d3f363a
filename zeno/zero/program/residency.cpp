#include "zeno/zero/program/residency.h"

#include <algorithm>

namespace zeno::zero {
namespace {

Gathered gathered_of(const Group& group) {
  if (!group.params.empty()) return Gathered::into_region;
  return group.stale() ? Gathered::into_storage : Gathered::never;
}

// Joins consecutive intervals of a group if few elements are gathered by the intervals that start between
// them. Intervals are sorted by start.
void join_close(std::vector<Residency>& intervals, const CompileInput& input) {
  if (input.policy.reuse_distance <= 0) return;
  std::vector<int64_t> sum{0};  // of all intervals before
  for (const Residency& r : intervals) {
    const bool counts = r.gathered != Gathered::into_storage;
    sum.push_back(sum.back() + (counts ? input.units.groups[r.group].padded() : 0));
  }
  const auto place = [&](auto end) { return size_t(end - intervals.begin()); };
  const auto distance = [&](int from, int to) {
    const size_t begin = place(std::ranges::upper_bound(intervals, from, {}, &Residency::first));
    const size_t end = place(std::ranges::lower_bound(intervals, to, {}, &Residency::first));
    return begin < end ? sum[end] - sum[begin] : 0;
  };
  std::vector<Residency> joined;
  std::vector<int> latest(input.units.groups.size(), -1);  // of each group, in `joined`
  for (const Residency& r : intervals) {
    int& before = latest[r.group];
    if (r.gathered != Gathered::into_storage && before >= 0 &&
        distance(joined[before].last, r.first) <= input.policy.reuse_distance) {
      joined[before].last = r.last;
    } else {
      before = int(joined.size());
      joined.push_back(r);
    }
  }
  intervals = std::move(joined);
}

// Moves gathers ahead of their use, in order, while the elements gathered ahead fit the prefetch budget.
void prefetch(std::vector<Residency>& intervals, const CompileInput& input, int steps) {
  std::vector<int64_t> arrives(steps + 1, 0), leaves(steps + 1, 0);  // by step: no longer ahead, or live
  int64_t ahead = 0, live = 0;
  size_t next = 0;
  for (int step = 0; step < steps && next < intervals.size(); ++step) {
    ahead -= arrives[step];
    live -= leaves[step];
    for (; next < intervals.size(); ++next) {
      Residency& r = intervals[next];
      const Group& group = input.units.groups[r.group];
      const int64_t size = r.gathered == Gathered::never && !group.moves ? 0 : group.padded();
      const bool fits = ahead + size <= input.policy.prefetch && live + size <= input.policy.max_live;
      if (r.first > step && !fits) break;
      r.issue = step;
      if (r.first > step) {
        ahead += size;
        arrives[r.first] += size;
      }
      if (r.gathered != Gathered::into_storage) {
        live += size;
        leaves[r.last + 1] += size;
      }
    }
  }
}

}  // namespace

std::vector<int> param_groups(const CompileInput& input, const ComputeStep& step) {
  const bool reads = step.pass != Pass::backward || input.model.layers[step.layer]->backward_needs_params();
  return reads ? input.units.layer_groups[step.layer] : std::vector<int>{};
}

std::vector<Residency> plan_residency(const CompileInput& input, const std::vector<ComputeStep>& steps) {
  std::vector<Residency> intervals;
  std::vector<int> open(input.units.groups.size(), -1);  // the latest interval of each group
  for (int s = 0; s < int(steps.size()); ++s) {
    for (int g : param_groups(input, steps[s])) {
      const Gathered gathered = gathered_of(input.units.groups[g]);
      if (gathered == Gathered::never && !input.units.groups[g].nf4 && !input.units.groups[g].moves) continue;
      const bool same = open[g] >= 0 && (gathered == Gathered::into_storage ||
                                         steps[intervals[open[g]].last].phase == steps[s].phase);
      if (same) {
        intervals[open[g]].last = s;
      } else {
        open[g] = int(intervals.size());
        intervals.push_back({g, s, s, s, gathered});
      }
    }
  }
  join_close(intervals, input);
  prefetch(intervals, input, int(steps.size()));
  return intervals;
}

}  // namespace zeno::zero
