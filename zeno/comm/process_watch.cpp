#include "zeno/comm/process_watch.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace zeno::comm {

void ProcessWatch::add(int rank, int64_t pid) {
  processes_.push_back({rank, pid, FileHandle(int(syscall(SYS_pidfd_open, pid_t(pid), 0)))});
}

std::optional<int> ProcessWatch::ended() const {
  for (const Process& process : processes_) {
    if (has_ended(process)) return process.rank;
  }
  return std::nullopt;
}

bool ProcessWatch::has_ended(int rank) const {
  return std::ranges::any_of(processes_, [&](const Process& p) { return p.rank == rank && has_ended(p); });
}

int64_t ProcessWatch::pid_of(int rank) const {
  for (const Process& process : processes_) {
    if (process.rank == rank) return process.pid;
  }
  return 0;
}

bool ProcessWatch::has_ended(const Process& process) {
  if (process.handle.get() >= 0) {
    pollfd state{process.handle.get(), POLLIN, 0};
    return ::poll(&state, 1, 0) == 1;
  }
  std::ifstream file(fmt::format("/proc/{}/stat", process.pid));
  std::string line;
  if (!std::getline(file, line)) return true;
  const size_t name_end = line.rfind(')');  // "pid (name) S ...": the name may contain any characters
  const char state = name_end == std::string::npos || name_end + 2 >= line.size() ? 'X' : line[name_end + 2];
  return state == 'Z' || state == 'X';
}

}  // namespace zeno::comm
