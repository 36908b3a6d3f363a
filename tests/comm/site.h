// A group of ranks of a world, who sums in its communicators, and the device on which a test has its streams
// and buffers.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "zeno/comm/world.h"
#include "zeno/device/copy.h"

namespace zeno::comm::contract {

class Site {
 public:
  // All ranks.
  explicit Site(World& world, Device device = {}, Reduction reduction = Reduction::tree)
      : Site(world, device, everyone(world), reduction) {}
  Site(World& world, Device device, std::vector<int> ranks, Reduction reduction = Reduction::tree)
      : world_(world), device_(device), ranks_(std::move(ranks)), reduction_(reduction) {
    if (on_cuda()) copies_.emplace(StreamOptions{.device = device, .name = "copies"});
  }

  World& world() { return world_; }
  Device device() const { return device_; }
  bool on_cuda() const { return device_.kind == Device::Kind::cuda; }
  // Of the group.
  int rank() const { return int(std::ranges::find(ranks_, world_.rank()) - ranks_.begin()); }
  int size() const { return int(ranks_.size()); }
  std::unique_ptr<Communicator> communicator(std::string_view name) {
    return world_.communicator(name, device_, ranks_, reduction_);
  }
  Stream stream(const char* name, int threads = 1) const {
    return Stream({.device = device_, .name = name, .rank = rank(), .threads = threads});
  }

  // Between host and device memory; done when it returns.
  void copy(std::byte* to, const std::byte* from, size_t bytes) {
    copy_async(*copies_, to, from, bytes);
    copies_->synchronize();
  }

 private:
  static std::vector<int> everyone(const World& world) {
    std::vector<int> ranks(static_cast<size_t>(world.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  World& world_;
  Device device_;
  std::vector<int> ranks_;
  Reduction reduction_;
  std::optional<Stream> copies_;
};

// Waits for the stream and throws what went wrong, wherever the device keeps it.
inline void settle(const Stream& stream, Communicator& comm) {
  stream.synchronize();
  comm.poll();
}

}  // namespace zeno::comm::contract
