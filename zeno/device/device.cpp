#include "zeno/device/device.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "zeno/device/cuda/memory.h"

namespace zeno {

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return std::max(1, int(sysconf(_SC_NPROCESSORS_ONLN)));
  return std::max(1, CPU_COUNT(&set));
}

int share_of_cores(int local_ranks) { return std::max(1, available_cores() / local_ranks); }

size_t available_host_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  size_t kib = 0;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(file, unit);
  }
  return size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
}

int device_count(Device::Kind kind) { return kind == Device::Kind::cpu ? 1 : cuda_device_count(); }

size_t available_memory(Device device) {
  return device.kind == Device::Kind::cpu ? available_host_memory() : cuda_memory(device.index).available;
}

size_t total_memory(Device device) {
  if (device.kind == Device::Kind::cuda) return cuda_memory(device.index).total;
  return size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
}

LibraryMemory library_memory(Device::Kind kind) {
  if (kind == Device::Kind::cpu) return {};
  return {size_t(522) << 20, size_t(40) << 20};
}

std::string describe(Device device) {
  if (device.kind == Device::Kind::cuda) return "cuda:" + std::to_string(device.index);
  return "cpu (" + std::to_string(available_cores()) + " cores)";
}

}  // namespace zeno
