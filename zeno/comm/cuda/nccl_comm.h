// Owner of one ncclComm_t. Non-blocking: every call returns at once and is watched until NCCL has done it, so
// a dead peer never hangs this process. Thread rule: group() from one thread; trouble() and abort() from any.
#pragma once

#include <nccl.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "zeno/comm/cuda/nccl_memory.h"
#include "zeno/comm/failure.h"

namespace zeno::comm {

class NcclComm final : NcclMemory::User {
 public:
  struct Place {
    ncclUniqueId id;
    int rank = 0, size = 1;  // in the group
    int world_rank = 0;
  };
  // Collective, on the current device; returns when all ranks are connected.
  NcclComm(const Place& place, std::shared_ptr<NcclMemory> memory, OpWait& wait);
  // Does not wait for peers: operations in progress are dropped unless close() was called.
  ~NcclComm() override;

  // Makes the calls as one group; returns when NCCL has queued them on their streams.
  using Calls = std::function<void(ncclComm_t comm)>;
  void group(const Calls& calls, OpWait& wait);
  // Lets NCCL move this buffer without a copy, where it can.
  void use(const std::byte* buffer);
  // The error that NCCL reports, if something went wrong in the background.
  std::optional<std::string> trouble();
  // Ends what is running on the device. Later calls throw.
  void abort() noexcept;
  // Ends in order, once all operations are done; gives up after a moment.
  void close() noexcept;

 private:
  void forget(std::byte* block) noexcept override;
  // Waits until NCCL has finished what it began in the background.
  void settle(OpWait& wait);
  [[noreturn]] void fail_all(ncclResult_t result, OpWait& wait);

  const int world_rank_;
  const std::shared_ptr<NcclMemory> memory_;  // shared with the world and its blocks
  std::mutex mutex_;                          // guards comm_ against abort() from another thread
  ncclComm_t comm_ = nullptr;                 // null: ended
  std::map<std::byte*, void*> registered_;    // block → handle; null when NCCL declined
};

// For calls inside a group, which may still be in progress when they return.
void check_nccl(ncclResult_t result, const char* what);

}  // namespace zeno::comm
