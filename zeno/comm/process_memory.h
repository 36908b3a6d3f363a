// Memory that the processes of one host read from each other without a copy. Each process has one growing
// memory file; every block is a new range of it that is never reused, so what peers have mapped stays valid.
// Releasing a block gives its pages back at once. Thread rule: any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "zeno/comm/peers.h"
#include "zeno/comm/shared_region.h"
#include "zeno/device/buffer.h"

namespace zeno::comm {

class ProcessMemory final : public PeerMemory, public std::enable_shared_from_this<ProcessMemory> {
 public:
  ProcessMemory();

  struct Source {
    int64_t pid = 0;
    int fd = -1;
  };
  // Tells peers where to find this process's memory.
  Source source() const;
  // Opens the memory of the ranks of this host, by local index. Returns false when the system forbids it.
  bool connect(const std::vector<Source>& peers);

  // Allocates all pages, or throws Error(memory). The block keeps this object alive.
  Block allocate(size_t bytes);
  // For boards: pages are allocated when touched, and live as long as this object or any peer that has mapped
  // them.
  std::byte* allocate_sparse(size_t bytes);

  Address publish(const std::byte* data) override;
  const std::byte* resolve(int local_index, const Address& address) override;
  std::chrono::milliseconds patience() const override { return std::chrono::seconds(2); }

 private:
  struct Entry {
    size_t offset = 0;
    SharedRegion region;
  };
  std::byte* add(size_t bytes, bool reserve);
  void release(std::byte* data);

  FileHandle file_;
  std::vector<FileHandle> peers_;
  std::mutex mutex_;
  size_t end_ = 0;
  std::map<const std::byte*, Entry> blocks_;
  std::map<std::pair<int, uint64_t>, SharedRegion> mapped_;  // by peer and offset
};

}  // namespace zeno::comm
