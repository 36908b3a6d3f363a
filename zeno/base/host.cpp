#include "zeno/base/host.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace zeno {
namespace {

constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

// "max", "-1" and what is not there are no number.
std::optional<size_t> number(const std::string& word) {
  if (word.empty() || word.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return size_t(std::strtoull(word.c_str(), nullptr, 10));
}

std::optional<size_t> number_in(const Path& path) {
  std::string word;
  std::ifstream(path) >> word;
  return number(word);
}

// The number behind `key` in a file of lines such as "MemTotal: 16384 kB"; 0 where there is none.
size_t value_of(const Path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    size_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return 0;
}

struct MemoryFiles {
  const char *limit, *used, *reclaimable;  // the last is a key of memory.stat
};
constexpr MemoryFiles kMemoryFiles[] = {
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
    {"memory.max", "memory.current", "inactive_file"}};

void apply_memory(HostLimits& limits, const Path& group, const MemoryFiles& files) {
  const size_t limit = number_in(group / files.limit).value_or(kUnlimited);
  if (limit == kUnlimited) return;
  const size_t used = number_in(group / files.used).value_or(0),
               cache = std::min(used, value_of(group / "memory.stat", files.reclaimable));
  limits.total_memory = std::min(limits.total_memory, limit);
  limits.available_memory = std::min(limits.available_memory, limit - std::min(limit, used - cache));
}

void apply_cores(HostLimits& limits, const Path& group, bool second_version) {
  std::string quota, period;
  if (second_version) {
    std::ifstream(group / "cpu.max") >> quota >> period;
  } else {
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group / "cpu.cfs_period_us") >> period;
  }
  if (!number(quota) || number(period).value_or(0) == 0) return;
  const double cores = double(*number(quota)) / double(*number(period));
  limits.cores = limits.cores == 0 ? cores : std::min(limits.cores, cores);
}

}  // namespace

HostLimits host_limits(const Path& root) {
  const size_t total = value_of(root / "proc/meminfo", "MemTotal:") * 1024;
  HostLimits limits{.total_memory = total > 0 ? total : kUnlimited,
                    .available_memory = value_of(root / "proc/meminfo", "MemAvailable:") * 1024};
  if (limits.available_memory == 0) limits.available_memory = limits.total_memory;
  const Path mounts = root / "sys/fs/cgroup";
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // number:controllers:group
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool second_version = controllers == ",,";
    const bool memory = second_version || controllers.find(",memory,") != std::string::npos;
    const bool cpu = second_version || controllers.find(",cpu,") != std::string::npos;
    // Every group around ours has a say. In a container the path may be the host's: then only its last
    // folder, the mount itself, is there, and that is our group.
    Path group = Path(line.substr(second + 1)).relative_path();
    while (true) {
      if (memory)
        apply_memory(limits, (second_version ? mounts : mounts / "memory") / group,
                     kMemoryFiles[second_version]);
      if (cpu) apply_cores(limits, (second_version ? mounts : mounts / "cpu") / group, second_version);
      if (group.empty()) break;
      group = group.parent_path();
    }
  }
  return limits;
}

int available_cores() {
  static const double limit = host_limits().cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cores =
      sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : int(sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1, limit > 0 ? std::min(cores, int(std::ceil(limit))) : cores);
}

int share_of_cores(int local_ranks) { return std::max(1, available_cores() / local_ranks); }

size_t available_host_memory() { return host_limits().available_memory; }
size_t total_host_memory() { return host_limits().total_memory; }

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace zeno
