#include "zeno/device/device.h"

#include "zeno/base/host.h"
#include "zeno/device/cuda/memory.h"

namespace zeno {

int device_count(Device::Kind kind) { return kind == Device::Kind::cpu ? 1 : cuda_device_count(); }

size_t available_memory(Device device) {
  return device.kind == Device::Kind::cpu ? available_host_memory() : cuda_memory(device.index).available;
}

size_t total_memory(Device device) {
  if (device.kind == Device::Kind::cuda) return cuda_memory(device.index).total;
  return total_host_memory();
}

LibraryMemory library_memory(Device::Kind kind) {
  if (kind == Device::Kind::cpu) return {};
  return {size_t(522) << 20, size_t(40) << 20};
}

void choose_device(Device device) {
  if (device.kind == Device::Kind::cuda) cuda_choose_device(device.index);
}

std::string pci_address(Device device) { return cuda_pci_address(device.index); }

std::string describe(Device device) {
  if (device.kind == Device::Kind::cuda) return "cuda:" + std::to_string(device.index);
  return "cpu (" + std::to_string(available_cores()) + " cores)";
}

}  // namespace zeno
