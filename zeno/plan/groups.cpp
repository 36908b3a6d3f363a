#include "zeno/plan/groups.h"

namespace zeno::plan {

std::string flags_of(const Groups& groups) {
  if (groups.ranks == 0) return "";
  const bool params = groups.sharding == zero::Sharding::params_in_groups;
  return fmt::format("{} {}", params ? "--param-group" : "--shard-group", groups.ranks);
}

std::vector<Groups> group_choices(const zero::EngineOptions& options, int world) {
  constexpr int kFactor = 4;
  std::vector<Groups> choices{{}};
  const zero::Policy& policy = options.policy;
  const bool hosts = options.ranks_per_host > 0 && world > options.ranks_per_host;
  if (!hosts || options.inner > 0 || policy.params.empty() || policy.reproducible) return choices;
  for (int ranks = options.ranks_per_host; ranks < world; ranks *= kFactor) {
    if (world % ranks != 0) break;
    // Parameters that leave the device are sharded as their states are.
    if (policy.offload.params == Tier::device) choices.push_back({ranks, zero::Sharding::params_in_groups});
    choices.push_back({ranks, zero::Sharding::in_groups});
  }
  return choices;
}

}  // namespace zeno::plan
