// A group of ranks of a world, and the device on which a test has its streams and buffers.
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
  explicit Site(World& world, Device device = {}) : Site(world, device, everyone(world)) {}
  Site(World& world, Device device, std::vector<int> ranks)
      : world_(world), device_(device), ranks_(std::move(ranks)) {
    if (on_cuda()) copies_.emplace(StreamOptions{.device = device, .name = "copies"});
  }

  World& world() { return world_; }
  Device device() const { return device_; }
  bool on_cuda() const { return device_.kind == Device::Kind::cuda; }
  // Of the group.
  int rank() const { return int(std::ranges::find(ranks_, world_.rank()) - ranks_.begin()); }
  int size() const { return int(ranks_.size()); }
  std::unique_ptr<Communicator> communicator(std::string_view name) {
    return world_.communicator(name, device_, ranks_);
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
  std::optional<Stream> copies_;
};

// Waits for the stream and throws what went wrong, wherever the device keeps it.
inline void settle(const Stream& stream, Communicator& comm) {
  stream.synchronize();
  comm.poll();
}

}  // namespace zeno::comm::contract
