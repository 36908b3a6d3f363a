// A disk that takes its time: every wait for it lasts so much longer.
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "zeno/device/disk_queue.h"

namespace zeno::test {

class SlowQueue final : public DiskQueue {
 public:
  SlowQueue(std::unique_ptr<DiskQueue> inner, double ms) : inner_(std::move(inner)), ms_(ms) {}
  std::string_view name() const override { return inner_->name(); }
  bool register_buffer(std::span<std::byte> memory) override { return inner_->register_buffer(memory); }
  void submit(const DiskRequest& request) override { inner_->submit(request); }
  size_t wait(std::span<DiskCompletion> done) override {
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms_));
    return inner_->wait(done);
  }

 private:
  std::unique_ptr<DiskQueue> inner_;
  double ms_;
};

}  // namespace zeno::test
