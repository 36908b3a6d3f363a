// Which cores are near a device, and threads that stay there.
#pragma once

#include <string_view>
#include <vector>

#include "zeno/device/device.h"

namespace zeno {

// "0-3,8" as {0, 1, 2, 3, 8}: how Linux lists the cores of a NUMA node.
std::vector<int> parse_core_list(std::string_view list);
// The cores of the NUMA node next to the device; empty where the machine does not tell.
std::vector<int> cores_near(Device device);
// Keeps the calling thread, and threads that it starts from now on, to those cores among the ones it may use.
// It may still move between them: a single core would be shared with the other threads of this process and
// with every other job that counts cores from the first. Where none is left, nothing changes.
void stay_near(Device device);

}  // namespace zeno
