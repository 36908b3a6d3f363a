// A thread that looks again and again whether something has come to a stop, on behalf of a thread that may be
// the one that is stuck: in a disk, or in the start of MPI.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace zeno {

class Watch {
 public:
  // Asks `look` several times a second until it returns true, which ends the watch.
  explicit Watch(std::function<bool()> look);
  ~Watch();  // `look` is not running afterwards
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable change_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace zeno
