#include "zeno/comm/cuda/nccl_memory.h"

#include <nccl.h>

#include "zeno/base/error.h"
#include "zeno/device/cuda/runtime.h"

namespace zeno::comm {

Block NcclMemory::allocate(Device device, size_t bytes) {
  cuda::check(cudaSetDevice(device.index), "choose the device");
  void* data = nullptr;
  const ncclResult_t status = ncclMemAlloc(&data, bytes);
  if (status != ncclSuccess) cudaGetLastError();  // clears the error that NCCL left in the runtime
  require(status == ncclSuccess, ErrorKind::memory, "[nccl] the device refused {}: {}", format_bytes(bytes),
          ncclGetErrorString(status));
  auto* const block = static_cast<std::byte*>(data);
  {
    const std::scoped_lock lock(mutex_);
    blocks_[block] = {block, bytes};
  }
  return {block, [self = shared_from_this()](std::byte* p) { self->release(p); }};
}

void NcclMemory::release(std::byte* data) noexcept {
  {
    const std::scoped_lock lock(mutex_);
    blocks_.erase(data);
    for (User* user : users_) user->forget(data);
  }
  ncclMemFree(data);
}

std::optional<NcclMemory::Range> NcclMemory::find(const std::byte* data) const {
  const std::scoped_lock lock(mutex_);
  auto after = blocks_.upper_bound(data);
  if (after == blocks_.begin()) return std::nullopt;
  const Range& range = std::prev(after)->second;
  return data < range.data + range.bytes ? std::optional(range) : std::nullopt;
}

void NcclMemory::add(User& user) {
  const std::scoped_lock lock(mutex_);
  users_.insert(&user);
}

void NcclMemory::remove(User& user) {
  const std::scoped_lock lock(mutex_);
  users_.erase(&user);
}

std::shared_ptr<NcclMemory> make_nccl_memory() { return std::make_shared<NcclMemory>(); }

Allocator nccl_allocator(std::shared_ptr<NcclMemory> memory, Device device) {
  return [memory = std::move(memory), device](size_t bytes) { return memory->allocate(device, bytes); };
}

}  // namespace zeno::comm
