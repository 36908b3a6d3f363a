// What every backend must do for groups of ranks. Part of cases() in communicator_contract.h; each is given a
// site of the whole world.
#pragma once

#include "site.h"

namespace zeno::comm::contract {

// Every way to cut the ranks into groups (a sample of them for large worlds), all groups of one at work side
// by side.
void every_partition_into_groups(Site& site);
// A mesh: each rank is in a group along every axis, and they work at the same time.
void groups_along_axes_at_once(Site& site);
void refuses_wrong_groups(Site& site);

}  // namespace zeno::comm::contract
