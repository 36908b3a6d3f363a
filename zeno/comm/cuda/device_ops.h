// The operations of a communicator that are queued on the device and not known to be done, oldest first, each
// between two events, which tell nccl_group.cpp when it starts and ends. Events come from a pool that grows
// to the longest queue. Thread rule: calls are serialised by the owner.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <vector>

#include "zeno/comm/cuda/handles.h"
#include "zeno/comm/flight/op_record.h"

namespace zeno::comm {

struct DeviceOp {
  using Clock = std::chrono::steady_clock;

  OpRecord record;
  uint64_t flight = 0;
  CudaEvent begun, ended;
  bool closed = false;                       // `ended` has been recorded
  std::optional<Clock::time_point> started;  // when it was first seen on the device

  // Throw Error(internal) when the device has failed.
  bool has_begun() const { return passed(begun); }
  bool has_ended() const { return closed && passed(ended); }

 private:
  static bool passed(const CudaEvent& event) {
    const cudaError_t status = event.query();
    if (status == cudaErrorNotReady) return false;
    cuda::check(status, "follow an operation");
    return true;
  }
};

class DeviceOps {
 public:
  bool empty() const { return open_.empty(); }
  DeviceOp& oldest() { return open_.front(); }

  void begin(const OpRecord& record, uint64_t flight, cudaStream_t stream) {
    if (pool_.empty()) pool_.emplace_back();
    open_.push_back(std::move(pool_.back()));
    pool_.pop_back();
    DeviceOp& op = open_.back();
    op.record = record;
    op.flight = flight;
    op.closed = false;
    op.started.reset();
    op.begun.record(stream);
  }
  // Ends the operation that began last.
  void end(cudaStream_t stream) {
    open_.back().ended.record(stream);
    open_.back().closed = true;
  }
  void drop_oldest() {
    pool_.push_back(std::move(open_.front()));
    open_.pop_front();
  }

 private:
  std::deque<DeviceOp> open_;
  std::vector<DeviceOp> pool_;
};

}  // namespace zeno::comm
