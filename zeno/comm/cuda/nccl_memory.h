// Device memory that NCCL can register, so that it moves data straight from and into it. Communicators find
// the block of a buffer here, register it when they first see it, and are told before it is freed. Thread
// rule: any thread may call.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "zeno/comm/cuda/communicators.h"

namespace zeno::comm {

class NcclMemory : public std::enable_shared_from_this<NcclMemory> {
 public:
  struct Range {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  class User {
   public:
    virtual ~User() = default;
    // The block is about to be freed.
    virtual void forget(std::byte* block) noexcept = 0;
  };

  // The block keeps this object alive.
  Block allocate(Device device, size_t bytes);
  // The block that holds `data`, if it was allocated here.
  std::optional<Range> find(const std::byte* data) const;

  void add(User& user);
  // After this returns, forget() is not running and will not be called.
  void remove(User& user);

 private:
  void release(std::byte* data) noexcept;

  mutable std::mutex mutex_;
  std::map<const std::byte*, Range> blocks_;  // by address
  std::set<User*> users_;
};

}  // namespace zeno::comm
