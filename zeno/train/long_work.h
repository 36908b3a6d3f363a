// Work of some ranks that takes long, such as reading files from a slow disk. To the ranks that only wait it
// would look like a hang, so all ranks meet frequently until it is done.
#pragma once

#include <functional>
#include <stop_token>
#include <string_view>

#include "zeno/comm/world.h"

namespace zeno::train {

// Runs `work`, which is not collective, on a separate thread; empty: this rank has none. If it fails
// anywhere, all ranks throw the error of the lowest rank on which it failed. If the world fails meanwhile,
// requests `work` to stop and waits for it. Collective.
void work_long_together(comm::World& world, std::string_view what,
                        const std::function<void(std::stop_token)>& work);

}  // namespace zeno::train
