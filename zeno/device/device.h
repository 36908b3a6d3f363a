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

// Device memory that the driver and its libraries take per process, in addition to all buffers: the context,
// which exists from the first call on, and what is loaded later. Seen on an H200 with CUDA 13.0, cuDNN 9.14;
// 0 on a CPU.
struct LibraryMemory {
  size_t context = 0, later = 0;
};
LibraryMemory library_memory(Device::Kind kind);

// The device that calls of this thread are for; a new thread has chosen none.
void choose_device(Device device);

std::string describe(Device device);
// Of a GPU, as nvidia-smi and sysfs name it: 0000:1b:00.0.
std::string pci_address(Device device);

}  // namespace zeno
