// The fraction of the states in a GPU's host memory that the CPU should update, while the rest passes through
// the GPU, so that both finish at the same time: from rates measured at once, because both draw on the host's
// memory.
#pragma once

#include "zeno/device/device.h"
#include "zeno/zero/policy.h"

namespace zeno::plan {

struct OffloadRates {
  double link = 0;     // bytes per second each way, both ways at once
  double updates = 0;  // elements per second by the CPU, meanwhile
};

// A fraction of a second; `threads` of the CPU.
OffloadRates measure_offload_rates(Device device, int threads, const zero::Policy& policy);

// The share of the CPU, 0 to 1.
double balanced_cpu_share(const OffloadRates& rates, const zero::Policy& policy);

}  // namespace zeno::plan
