// Where work runs. A Device is a small value; the CPU is a device like any other.
#pragma once

#include <cstddef>
#include <string>

namespace zeno {

struct Device {
  enum class Kind { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;

  bool operator==(const Device&) const = default;
};

// How many devices of a kind this machine (and this build) has; the CPU counts as one.
int device_count(Device::Kind kind);
// Bytes that can be allocated on the device now, and bytes it has.
size_t available_memory(Device device);
size_t total_memory(Device device);

// Cores this process may use (its affinity mask), at least 1.
int available_cores();
// Bytes of memory the machine has available now.
size_t available_host_memory();
std::string describe(Device device);

}  // namespace zeno
