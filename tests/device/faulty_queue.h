// A queue that cuts, refuses, fails or damages requests on demand, in front of a real one.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/device/disk_queue.h"

namespace zeno::test {

// What goes wrong with the requests of one direction.
struct DiskFault {
  bool write = false;
  int64_t at = -1;        // number of the first request to fail; -1: none
  int64_t count = 1;      // how many from there on
  int64_t result = 0;     // what is reported: -errno, or the bytes after which the transfer is cut
  bool flip = false;      // instead, one bit arrives wrong and nothing is reported
  int64_t requests = 0;   // of this direction so far
  int64_t in_flight = 0;  // of them now
};

class FaultyQueue final : public DiskQueue {
 public:
  FaultyQueue(std::unique_ptr<DiskQueue> inner, DiskFault& fault) : inner_(std::move(inner)), fault_(fault) {}

  std::string_view name() const override { return inner_->name(); }
  bool register_buffer(std::span<std::byte> memory) override { return inner_->register_buffer(memory); }

  void submit(const DiskRequest& request) override {
    if (request.write != fault_.write) return inner_->submit(request);
    meant_ = true;
    ++fault_.in_flight;
    const int64_t number = fault_.requests++ - fault_.at;
    if (fault_.at < 0 || number < 0 || number >= fault_.count) return inner_->submit(request);
    if (fault_.flip) return inner_->submit(damaged(request));
    const int64_t result = std::min(fault_.result, int64_t(request.bytes));
    replaced_.push_back({request.tag, result});
    // Nothing arrives of the page that is cut, so it must be moved again.
    DiskRequest part = request;
    part.bytes = result < 0 ? 0 : size_t(result) / kDirectAlign * kDirectAlign;
    part.bytes > 0 ? inner_->submit(part) : ready_.push_back({request.tag, result});
  }

  size_t wait(std::span<DiskCompletion> done) override {
    size_t count = 0;
    if (ready_.empty()) {
      count = inner_->wait(done);
    } else {
      done[count++] = ready_.back();
      ready_.pop_back();
    }
    for (DiskCompletion& completion : done.first(count)) {
      for (auto& [tag, bad] : flips_) {
        if (tag == completion.tag && bad != nullptr) *std::exchange(bad, nullptr) ^= std::byte{4};
      }
      const auto replaced = std::ranges::find(replaced_, completion.tag, &DiskCompletion::tag);
      if (replaced == replaced_.end()) continue;
      completion.result = replaced->result;
      replaced_.erase(replaced);
    }
    if (meant_) fault_.in_flight -= int64_t(count);
    return count;
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  // A write takes its bytes from a bad copy, what a read has brought is spoilt afterwards.
  DiskRequest damaged(DiskRequest request) {
    const size_t middle = request.bytes / 2;
    if (!request.write) {
      flips_.emplace_back(request.tag, request.data + middle);
      return request;
    }
    copies_.emplace_back(static_cast<std::byte*>(std::aligned_alloc(kDirectAlign, request.bytes)));
    std::copy_n(request.data, request.bytes, copies_.back().get());
    request.data = copies_.back().get();
    request.data[middle] ^= std::byte{4};
    return request;
  }

  std::unique_ptr<DiskQueue> inner_;
  DiskFault& fault_;
  bool meant_ = false;  // this queue has the direction that fails
  std::vector<DiskCompletion> ready_, replaced_;
  std::vector<std::pair<int, std::byte*>> flips_;  // by tag: where a bit goes wrong
  std::vector<std::unique_ptr<std::byte, Free>> copies_;
};

}  // namespace zeno::test
