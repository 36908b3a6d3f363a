// Owner of one block of memory, counted in the rank's ledger for as long as it lives. Move-only; kernels and
// collectives take views (Tensor, pointers) and never own. Where the bytes come from (plain memory, a window
// that other processes can map, a GPU) is the allocator's affair.
#pragma once

#include <cstddef>
#include <functional>

#include "zeno/device/device.h"
#include "zeno/device/ledger.h"

namespace zeno {

// Memory that a Buffer can own: address and how to free it.
struct Block {
  std::byte* data = nullptr;
  std::function<void(std::byte*)> release;
};

// Makes blocks of at least `bytes`, 64-byte aligned. May throw Error(memory).
using Allocator = std::function<Block(size_t bytes)>;

// Private memory of the process, in huge pages where the kernel gives them.
Block allocate_host(size_t bytes);
// Host memory that the device can copy from and to without a detour; plain memory for the CPU.
Block allocate_pinned(Device device, size_t bytes);
// Plain memory of a device.
Allocator allocator_of(Device device);

class Buffer {
 public:
  Buffer() = default;
  Buffer(Ledger& ledger, Tier tier, Purpose purpose, size_t bytes,
         const Allocator& allocator = allocate_host);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  std::byte* data() const { return block_.data; }
  size_t bytes() const { return bytes_; }

 private:
  Ledger* ledger_ = nullptr;
  Tier tier_ = Tier::device;
  Purpose purpose_ = Purpose::workspace;
  size_t bytes_ = 0;
  Block block_;
};

}  // namespace zeno
