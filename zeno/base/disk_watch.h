// A thread that looks whether a disk has stopped answering, for programs and ranks whose own thread may be
// the one that is stuck in it.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "zeno/base/disk_operation.h"

namespace zeno {

class DiskWatch {
 public:
  // Asks `look` several times a second; hands the first stall to `tell`, on the watch's thread, and ends.
  DiskWatch(std::function<std::optional<DiskStall>()> look, std::function<void(const DiskStall&)> tell);
  ~DiskWatch();
  DiskWatch(const DiskWatch&) = delete;
  DiskWatch& operator=(const DiskWatch&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable change_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace zeno
