// Memory for what is read past the page cache, used again and again: fresh pages would cost as much as the
// reading. Any thread may take a block; it is returned automatically.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/file.h"

namespace zeno::checkpoint {

class PagePool {
 public:
  // Blocks of `bytes`, a multiple of kDirectAlign.
  explicit PagePool(size_t bytes) : bytes_(bytes) {}
  ~PagePool() {
    for (std::byte* block : free_) std::free(block);
  }
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  struct Return {
    PagePool* pool;
    void operator()(std::byte* block) const {
      const std::scoped_lock lock(pool->mutex_);
      pool->free_.push_back(block);
    }
  };
  using Block = std::unique_ptr<std::byte[], Return>;  // must not outlive the pool

  Block take() {
    {
      const std::scoped_lock lock(mutex_);
      if (!free_.empty()) {
        std::byte* block = free_.back();
        free_.pop_back();
        return Block(block, Return{this});
      }
    }
    auto* block = static_cast<std::byte*>(std::aligned_alloc(kDirectAlign, bytes_));
    require(block != nullptr, ErrorKind::memory, "[checkpoint] no memory for {} bytes", bytes_);
    return Block(block, Return{this});
  }
  size_t bytes() const { return bytes_; }

 private:
  const size_t bytes_;
  std::mutex mutex_;
  std::vector<std::byte*> free_;
};

}  // namespace zeno::checkpoint
