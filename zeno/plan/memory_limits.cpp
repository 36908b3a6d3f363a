#include "zeno/plan/memory_limits.h"

#include <algorithm>

#include "zeno/base/host.h"
#include "zeno/base/quantity.h"
#include "zeno/device/device.h"

namespace zeno::plan {

MemoryLimits memory_limits(const config::RunConfig& run, Device device, int local_size) {
  const auto given = [](const std::string& size, size_t otherwise) {
    return size.empty() ? otherwise : size_t(parse_bytes(size).value());
  };
  // Beside what is planned the process has its code, its heap and the tables of its pages.
  const size_t free_host = available_host_memory();
  const size_t host = given(run.host_mem, free_host - free_host / 50) / size_t(local_size);
  if (device.kind == Device::Kind::cpu) return {given(run.device_mem, host), host};
  const int devices = device_count(device.kind), sharing = (local_size + devices - 1) / devices;
  // The plan counts the context, which exists already; a little is left for memory that is not counted.
  constexpr size_t kReserve = size_t(128) << 20;
  const size_t free = available_memory(device) / size_t(sharing);
  return {given(run.device_mem, free + library_memory(device.kind).context - std::min(free, kReserve)), host};
}

}  // namespace zeno::plan
