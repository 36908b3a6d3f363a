// What this process may use of the machine it runs on: the cores of its affinity mask and the memory that is
// free, both within the limits of the container or job around it (cgroups of either version). A run that goes
// by the machine's own figures there is killed, or has its threads stopped for most of the time.
#pragma once

#include <cstddef>
#include <string>

#include "zeno/base/file.h"

namespace zeno {

struct HostLimits {
  double cores = 0;  // of CPU time; 0: no limit
  size_t total_memory = 0, available_memory = 0;
};
// Below `root`, which is / outside of tests.
HostLimits host_limits(const Path& root = "/");

int available_cores();  // at least 1
// What one of several ranks on this machine may use of them, at least 1.
int share_of_cores(int local_ranks);
// Bytes of memory that can be had now, and bytes there are.
size_t available_host_memory();
size_t total_host_memory();

std::string host_name();  // empty: it has none
// Of this start of this machine's kernel; empty: unknown.
std::string boot_id();

}  // namespace zeno
