#include "zeno/comm/process_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "zeno/base/error.h"
#include "zeno/base/math.h"

namespace zeno::comm {

ProcessMemory::ProcessMemory() : file_(make_memory_file()) {}

ProcessMemory::Source ProcessMemory::source() const { return {getpid(), file_.get()}; }

bool ProcessMemory::connect(const std::vector<Source>& peers) {
  for (const Source& peer : peers) {
    peers_.push_back(open_memory_file(peer.pid, peer.fd));
    if (peers_.back().get() < 0) return false;
  }
  return true;
}

Block ProcessMemory::allocate(size_t bytes) {
  return {add(bytes, true), [self = shared_from_this()](std::byte* p) { self->release(p); }};
}

std::byte* ProcessMemory::allocate_sparse(size_t bytes) { return add(bytes, false); }

std::byte* ProcessMemory::add(size_t bytes, bool reserve) {
  constexpr size_t kHugePage = size_t(2) << 20, kPage = 4096;
  const std::scoped_lock lock(mutex_);
  const size_t alignment = bytes >= kHugePage ? kHugePage : kPage;
  const size_t offset = round_up(end_, alignment), size = round_up(std::max<size_t>(bytes, 1), kPage);
  int result = 0;
  do {
    result = reserve ? fallocate(file_.get(), 0, off_t(offset), off_t(size))
                     : ftruncate(file_.get(), off_t(offset + size));
  } while (result != 0 && errno == EINTR);
  require(result == 0, ErrorKind::memory,
          "[comm] the system refused {} of shared memory: {}; use fewer ranks or a "
          "smaller batch",
          format_bytes(bytes), std::strerror(errno));
  end_ = offset + size;
  SharedRegion region = SharedRegion::map(file_, offset, size);
  std::byte* data = region.data();
  blocks_[data] = {offset, std::move(region)};
  return data;
}

void ProcessMemory::release(std::byte* data) {
  const std::scoped_lock lock(mutex_);
  const auto found = blocks_.find(data);
  if (found == blocks_.end()) return;
  const Entry& entry = found->second;
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(entry.offset),
            off_t(entry.region.bytes()));
  blocks_.erase(found);
}

Address ProcessMemory::publish(const std::byte* data) {
  const std::scoped_lock lock(mutex_);
  auto found = blocks_.upper_bound(data);
  if (found == blocks_.begin()) return {};
  --found;
  const Entry& entry = found->second;
  const size_t offset = size_t(data - found->first);
  if (offset >= entry.region.bytes()) return {};
  return {.shared = true, .block = entry.offset, .block_bytes = entry.region.bytes(), .offset = offset};
}

const std::byte* ProcessMemory::resolve(int local_index, const Address& address) {
  const std::scoped_lock lock(mutex_);
  auto [found, added] = mapped_.try_emplace({local_index, address.block});
  if (added)
    found->second = SharedRegion::map(peers_[size_t(local_index)], address.block, address.block_bytes);
  return found->second.data() + address.offset;
}

}  // namespace zeno::comm
