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

// As the options have it, and where they ask for no groups and shard parameters over several hosts: groups of
// a host, of four, sixteen …, for parameters alone and for everything.
std::vector<Groups> group_choices(const zero::EngineOptions& options, int world);

}  // namespace zeno::plan
