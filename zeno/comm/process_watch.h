// Notices when one of a set of processes ends, for whatever reason. Zombies count as ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "zeno/comm/shared_region.h"

namespace zeno::comm {

class ProcessWatch {
 public:
  void add(int rank, int64_t pid);
  // The rank of a process that has ended, if any. Does not block.
  std::optional<int> ended() const;
  // False for ranks that are not watched.
  bool has_ended(int rank) const;
  int64_t pid_of(int rank) const;

 private:
  struct Process {
    int rank = 0;
    int64_t pid = 0;
    FileHandle handle;  // pidfd; invalid where the kernel has none: then /proc is read
  };
  static bool has_ended(const Process& process);
  std::vector<Process> processes_;
};

}  // namespace zeno::comm
