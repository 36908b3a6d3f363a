// Groups of ranks that share one copy of what is sharded: which are worth a look on a machine of several
// hosts.
#pragma once

#include <string>
#include <vector>

#include "zeno/zero/engine.h"

namespace zeno::plan {

struct Groups {
  int ranks = 0;  // 0: as the options have it
  zero::Sharding sharding = zero::Sharding::everywhere;
};
// "--shard-group 64"; empty: nothing to say.
std::string flags_of(const Groups& groups);

// As the options have it, and where they shard parameters over several hosts of `host` ranks: groups of a
// host, of four, sixteen …, for parameters alone and for everything. `host` 0: they ask for groups of their
// own.
std::vector<Groups> group_choices(const zero::EngineOptions& options, int host);
// `options` on the mesh that is asked for.
zero::EngineOptions on_mesh(zero::EngineOptions options, const comm::MeshRequest& mesh);

// What group_choices() takes.
int open_host(const comm::MeshRequest& request);

}  // namespace zeno::plan
