#include "zeno/plan/groups.h"

#include <algorithm>

namespace zeno::plan {

std::string flags_of(const Groups& groups) {
  if (groups.ranks == 0) return "";
  const bool params = groups.sharding == zero::Sharding::params_in_groups;
  return fmt::format("{} {}", params ? "--param-group" : "--shard-group", groups.ranks);
}

std::vector<Groups> group_choices(const zero::EngineOptions& options, int host) {
  constexpr int kFactor = 4;
  std::vector<Groups> choices{{}};
  const zero::Policy& policy = options.policy;
  if (host == 0 || policy.params.empty() || policy.reproducible) return choices;
  const int all = options.mesh.size({comm::Axis::outer, comm::Axis::inner});
  for (int ranks = host; ranks < all; ranks *= kFactor) {
    if (all % ranks != 0) break;
    // Parameters that leave the device are sharded as their states are.
    if (policy.offload.params == Tier::device) choices.push_back({ranks, zero::Sharding::params_in_groups});
    choices.push_back({ranks, zero::Sharding::in_groups});
  }
  return choices;
}

zero::EngineOptions on_mesh(zero::EngineOptions options, const comm::MeshRequest& mesh) {
  options.mesh = comm::mesh_of(mesh);
  return options;
}

int open_host(const comm::MeshRequest& request) {
  return request.group > 0 ? 0 : std::max(1, request.ranks_per_host / request.context);
}

}  // namespace zeno::plan
