// A world, and the device on which a test has its streams and buffers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/comm/world.h"
#include "zeno/device/copy.h"

namespace zeno::comm::contract {

class Site {
 public:
  explicit Site(World& world, Device device = {}) : world_(world), device_(device) {
    if (on_cuda()) copies_.emplace(StreamOptions{.device = device, .name = "copies"});
  }

  World& world() { return world_; }
  Device device() const { return device_; }
  bool on_cuda() const { return device_.kind == Device::Kind::cuda; }
  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  std::unique_ptr<Communicator> communicator(std::string_view name) {
    return world_.communicator(name, device_);
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
  World& world_;
  Device device_;
  std::optional<Stream> copies_;
};

// Waits for the stream and throws what went wrong, wherever the device keeps it.
inline void settle(const Stream& stream, Communicator& comm) {
  stream.synchronize();
  comm.poll();
}

}  // namespace zeno::comm::contract
