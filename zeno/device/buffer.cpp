#include "zeno/device/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/device/cuda/memory.h"

namespace zeno {

Block allocate_host(size_t bytes) {
  constexpr size_t kHugePage = size_t(2) << 20, kPage = 4096;
  // Whole pages can be written past the page cache.
  const size_t alignment = bytes >= kHugePage ? kHugePage : bytes >= kPage ? kPage : 64;
  const size_t rounded = round_up(bytes, alignment);
  auto* data = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
  require(data != nullptr, ErrorKind::memory,
          "[buffer] the system refused {}; use fewer ranks or a smaller batch", format_bytes(bytes));
  if (alignment == kHugePage) madvise(data, rounded, MADV_HUGEPAGE);
  return {data, [](std::byte* p) { std::free(p); }};
}

Block allocate_pinned(Device device, size_t bytes) {
  return device.kind == Device::Kind::cpu ? allocate_host(bytes) : cuda_allocate_pinned(device.index, bytes);
}

Allocator allocator_of(Device device) {
  if (device.kind == Device::Kind::cpu) return allocate_host;
  return [device](size_t bytes) { return cuda_allocate(device.index, bytes); };
}

Buffer::Buffer(Ledger& ledger, Tier tier, Purpose purpose, size_t bytes, const Allocator& allocator)
    : ledger_(&ledger), tier_(tier), purpose_(purpose), bytes_(bytes) {
  if (bytes == 0) return;
  ledger.take(tier, purpose, bytes);
  try {
    block_ = allocator(bytes);
  } catch (...) {
    ledger.give_back(tier, purpose, bytes);
    throw;
  }
}

Buffer::~Buffer() {
  if (block_.data == nullptr) return;
  block_.release(block_.data);
  ledger_->give_back(tier_, purpose_, bytes_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : ledger_(other.ledger_),
      tier_(other.tier_),
      purpose_(other.purpose_),
      bytes_(std::exchange(other.bytes_, 0)),
      block_(std::exchange(other.block_, Block{})) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    this->~Buffer();
    new (this) Buffer(std::move(other));
  }
  return *this;
}

}  // namespace zeno
