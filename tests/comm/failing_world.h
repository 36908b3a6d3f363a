// Ways in which a world goes wrong, as a body for one rank; used with threads and with processes.
#pragma once

#include <string_view>

#include "site.h"

namespace zeno::comm::contract {

// `way`: mismatch-op, mismatch-count, mismatch-unit, mismatch-exchange (an all_to_all, of which the last rank
// sends 8 elements to rank 0 instead of 7), throw, stall, kill and kill-inside, while the sum is under way
// (processes only), reading (the last rank fails while the others read its memory). The last rank does it, in
// operation 3 on 'reduce', unit blocks.2. The others throw Error(peer).
void fail_in(Site& site, std::string_view way);

}  // namespace zeno::comm::contract
