// Memory for the contents of a page, counted against a budget. It is not touched before it is written, so a
// page that claims more than it has costs nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "zeno/base/error.h"

namespace zeno::data::parquet {

// Bytes that all pages in memory may have together. Outlives its buffers; one thread.
struct PageBudget {
  uint64_t left = 0;
};

class PageBuffer {
 public:
  explicit PageBuffer(PageBudget& budget) : budget_(&budget) {}
  PageBuffer(PageBuffer&& other) noexcept : budget_(other.budget_) { swap(other); }
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~PageBuffer() { budget_->left += counted_; }

  // Discards the old contents. `besides`: what will be made of the page counts too.
  void resize(size_t bytes, uint64_t besides = 0) {
    bytes_.reset();
    budget_->left += std::exchange(counted_, 0);
    require(besides <= budget_->left && bytes <= budget_->left - besides, ErrorKind::data,
            "the pages need more than the {} bytes of memory that they may have", budget_->left);
    bytes_ = std::make_unique_for_overwrite<char[]>(bytes);
    size_ = bytes;
    counted_ = bytes + besides;
    budget_->left -= counted_;
  }
  char* data() { return bytes_.get(); }
  std::string_view view() const { return {bytes_.get(), size_}; }

 private:
  void swap(PageBuffer& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(size_, other.size_);
    std::swap(counted_, other.counted_);
  }

  PageBudget* budget_;
  std::unique_ptr<char[]> bytes_;
  size_t size_ = 0;
  uint64_t counted_ = 0;
};

}  // namespace zeno::data::parquet
