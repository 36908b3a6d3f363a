// Which states leave the device, from what memory there is: the fastest tier is filled first, and states that
// pass through the device may use the rest.
#pragma once

#include <string>

#include "zeno/zero/engine.h"

namespace zeno::plan {

// Bytes that one rank may use. On a CPU both tiers are the same memory, and `device` is the limit of both.
struct MemoryLimits {
  size_t device = 0, host = 0;
  bool known() const { return device > 0 || host > 0; }  // plans of other machines may know none
};

// What of a rank's plan is beyond its limits; 0: it fits.
size_t missing_device_bytes(size_t on_device, size_t on_host, Device device, MemoryLimits limits);
size_t missing_host_bytes(size_t on_host, Device device, MemoryLimits limits);
size_t missing_device_bytes(const zero::MemoryPlan& plan, Device device, MemoryLimits limits);
size_t missing_host_bytes(const zero::MemoryPlan& plan, Device device, MemoryLimits limits);
bool fits(const zero::MemoryPlan& plan, Device device, MemoryLimits limits);

// Moves the optimizer states, or as much of them as necessary, to host memory and, if `disk` is set, to the
// disk. Leaves options unchanged if everything fits.
void choose_offload(const nn::LayerList& model, zero::EngineOptions& options, MemoryLimits limits, bool disk);

// Lets as many states be under way through the device as there is room for, once everything else is known.
void widen_window(const nn::LayerList& model, zero::EngineOptions& options, MemoryLimits limits);

// One line for people: which states are kept where. Empty when all is on the device.
std::string describe_offload(const nn::LayerList& model, const zero::EngineOptions& options);

}  // namespace zeno::plan
