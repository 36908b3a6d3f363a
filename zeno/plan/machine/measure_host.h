// What the CPU of a host and the link of a device to its memory do, for plans and for balancing the two
// (cpu_share.h).
#pragma once

#include <functional>
#include <vector>

#include "zeno/device/buffer.h"
#include "zeno/device/stream.h"
#include "zeno/kernels/optimizer.h"
#include "zeno/zero/policy.h"

namespace zeno::plan {

// Of a state that the update reads or writes.
size_t update_bytes(DType dtype, int64_t count);

// An update of the optimizer on `threads` of the CPU near a device, to be made over and over. Owns its
// arrays.
class HostUpdates {
 public:
  HostUpdates(Device near, int threads, const zero::Policy& policy, int64_t count);
  // Blocks.
  void run();
  int64_t count() const { return op_.master.count(); }
  // That one reads or writes, each once.
  double bytes() const { return bytes_; }

 private:
  float factor_ = 1;
  double bytes_ = 0;
  Ledger ledger_;
  std::vector<Buffer> buffers_;
  Stream stream_;
  OptimizerUpdate op_;
};

// Copies between a device and pinned host memory, both directions at once. Async until wait().
class LinkCopies {
 public:
  LinkCopies(Device device, size_t bytes);
  // One copy each way.
  void queue();
  bool done() const { return up_done_.done() && down_done_.done(); }
  void wait() const;
  size_t bytes() const { return buffers_.front().bytes(); }

 private:
  Ledger ledger_;
  std::vector<Buffer> buffers_;  // to and from the device, then to and from the host
  Stream up_, down_;
  Event up_done_, down_done_;
};

}  // namespace zeno::plan
