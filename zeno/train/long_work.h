// Work of some ranks that takes long, such as reading files from a slow disk. Ranks that only wait for it
// would take it for a hang, so all of them meet frequently until it is done.
#pragma once

#include <functional>
#include <stop_token>
#include <string_view>

#include "zeno/comm/world.h"

namespace zeno::train {

// Runs `work`, which is not collective, on a thread of its rank; empty: this rank has none. Where it fails,
// all ranks throw the error of the lowest such rank. If the world fails meanwhile, `work` is asked to stop
// and waited for. Collective.
void work_long_together(comm::World& world, std::string_view what,
                        const std::function<void(std::stop_token)>& work);

}  // namespace zeno::train
