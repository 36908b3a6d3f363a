#include "zeno/device/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <charconv>
#include <fstream>
#include <string>

#include "zeno/device/cuda/memory.h"

namespace zeno {

std::vector<int> parse_core_list(std::string_view list) {
  std::vector<int> cores;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at < end) {
    int first = 0;
    const auto [after, error] = std::from_chars(at, end, first);
    if (error != std::errc()) break;
    int last = first;
    at = after;
    if (at < end && *at == '-') at = std::from_chars(at + 1, end, last).ptr;
    for (int core = first; core <= last; ++core) cores.push_back(core);
    if (at < end) ++at;  // the comma
  }
  return cores;
}

std::vector<int> cores_near(Device device) {
  if (device.kind == Device::Kind::cpu) return {};
  std::ifstream file(fmt::format("/sys/devices/system/node/node{}/cpulist", cuda_numa_node(device.index)));
  std::string list;
  std::getline(file, list);
  return parse_core_list(list);
}

void stay_near(Device device) {
  cpu_set_t allowed, near;
  CPU_ZERO(&near);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  for (int core : cores_near(device)) {
    if (core < CPU_SETSIZE && CPU_ISSET(core, &allowed)) CPU_SET(core, &near);
  }
  if (CPU_COUNT(&near) > 0) sched_setaffinity(0, sizeof(near), &near);
}

}  // namespace zeno
