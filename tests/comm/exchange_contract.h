// What every backend must do for all_to_all with unequal counts. Part of cases() in communicator_contract.h.
#pragma once

#include "site.h"

namespace zeno::comm::contract {

// Random counts, many of them zero, in every memory and dtype.
void exchanges_unequal_slices(Site& site);
// More parts than one rendezvous has, and one part that is large beside the others.
void exchanges_many_parts(Site& site);
void counts_unequal_traffic(Site& site);
void refuses_wrong_exchanges(Site& site);

}  // namespace zeno::comm::contract
